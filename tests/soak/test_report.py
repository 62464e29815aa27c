# SPDX-License-Identifier: Apache-2.0
"""The soak would see what it looks for, and its report is what was found."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.soak.coordinator_log import statuses
from tests.soak.processes import DRIVER, DRIVER_JVM, WORKER, _classified
from tests.soak.report import FEW, Growth, Left, Report, Spread, growth_of
from tests.soak.traffic import parsed, row
from tests.soak.verify import Content


def content(*topic_partitions: list[str]) -> Content:
    """Rows, ``<partition>:<number>``."""
    return Content.of(
        [f"{name}:0:".encode() for name in names] for names in topic_partitions
    )


class TestRows:
    def test_a_row_says_what_it_is(self) -> None:
        """Its partition, its number, and when it was made."""
        part, number, made_us = parsed(row(2, 12345))
        assert (part, number) == (2, 12345)
        assert made_us > 10**15

    def test_all_are_there(self) -> None:
        """In whatever topic partition."""
        source = content(["0:0", "0:1", "0:2"], ["1:0"], ["2:0"])
        sink = content(["0:0", "2:0", "0:2"], [], ["1:0", "0:1"])
        assert sink.beside(source) == ([], [])
        assert not sink.disordered

    def test_some_are_lost_and_some_repeated(self) -> None:
        """Each of them is named."""
        source = content(["0:0", "0:1", "0:2"], ["1:0"])
        sink = content(["0:0", "0:2", "0:2", "0:2"])
        assert sink.beside(source) == (["0:1", "1:0"], ["0:2", "0:2"])

    def test_some_are_out_of_order(self) -> None:
        """Those behind later ones of their partition count."""
        assert content(["0:0", "0:3", "1:0", "0:1", "0:2"]).disordered == 2


class TestMemory:
    @pytest.mark.parametrize(
        ("kind", "per_sample", "is_flat"),
        [(WORKER, 0.0, True), (WORKER, 0.5, False), (DRIVER_JVM, 0.5, True)],
    )
    def test_what_grows_is_seen(
        self, kind: str, per_sample: float, is_flat: bool
    ) -> None:
        """Beside others of its kind that do not; a JVM may take its heap."""
        steady = [(float(n), 100.0 + n % 3) for n in range(60)]
        grows = [(float(n), 80.0 + per_sample * n) for n in range(60)]
        growth = Growth(kind, 2, [], *growth_of([steady, grows]))
        assert growth.is_judged
        assert growth.is_flat == is_flat

    def test_too_short_a_life_tells_nothing(self) -> None:
        """It is not called flat for that."""
        life = [(float(n), 100.0 * n) for n in range(FEW - 1)]
        assert not Growth(WORKER, 1, [], *growth_of([life])).is_judged

    def test_a_beginning_is_no_growth(self) -> None:
        """A process that fills what it needs, and then stays."""
        life = [(float(n), 200.0 if n > 8 else 20.0 * n) for n in range(60)]
        assert growth_of([life]) == (200.0, 200.0)


def test_processes_are_known_by_their_parents(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not of the stream is not among them."""
    monkeypatch.setattr("os.getpid", lambda: 1)
    rows = {
        10: (1, 2048, "python -m tests.soak.driver {}"),
        11: (10, 1024, "java org.apache.spark.deploy.SparkSubmit pyspark-shell"),
        20: (1, 1024, "python guard.py java Worker"),
        21: (20, 1024, "java org.apache.spark.deploy.worker.Worker"),
        22: (21, 1024, "java o.a.s.executor.CoarseGrainedExecutorBackend"),
        23: (22, 1024, "python -m pyspark.daemon pyspark.worker"),
        24: (23, 1024, "python -m pyspark.daemon pyspark.worker"),
        30: (2, 1024, "python -m tests.soak.driver {}"),
    }
    found = {one.pid: one for one in _classified(rows)}
    assert sorted(found) == [10, 11, 22, 23, 24]
    assert found[10].kind == DRIVER
    assert found[10].rss_mib == 2
    assert [found[pid].is_forked for pid in (23, 24)] == [False, True]


def test_what_a_coordinator_has_written(tmp_path: Path) -> None:
    """All that became of one transaction, wherever it is stored, and no other's."""
    entries = (
        "08 03 10 3c 18 02 20 00 28 01 50 f8 cf e6 ae a0 34 58 3c",
        "08 03 10 3c 18 02 20 01 28 02 50 91 d0 e6 ae a0 34 58 3c",
        "08 03 10 3c 18 01 20 00 28 03 50 91 d0 e6 ae a0 34 58 3c",
        "08 03 10 bc 02 18 02 20 00 28 01 50 f8 cf e6 ae a0 34",
    )
    for number, text in enumerate(entries):
        name = f"{number}.{('txn', 'log')[number % 2]}"
        (tmp_path / name).write_bytes(b"\x00\xff" * 50 + bytes.fromhex(text))
    assert statuses(tmp_path, "(2,60)") == ["COMMITTING", "COMMITTED"]
    assert statuses(tmp_path, "(1,60)") == ["ABORTING"]
    assert statuses(tmp_path, "(2,316)") == ["COMMITTING"]
    assert statuses(tmp_path, "(0,60)") == []


def test_spread() -> None:
    """By the nearest rank."""
    assert Spread.of(float(n) for n in range(1, 201)) == Spread(200, 100, 198, 200)
    assert Spread.of([]) == Spread(0, 0, 0, 0)


def test_a_saved_report_is_the_same(tmp_path: Path) -> None:
    """It comes back whole, and as text."""
    report = Report(
        about={"minutes": "60"},
        rows={"fed": 12_345},
        faults={"driver killed": Spread(3, 1.0, 2.0, 2.5)},
        latency=Spread(10, 0.5, 1.5, 2.0),
        stream={"micro-batches": 7},
        failures={"PULSAR_TIMEOUT": 1},
        left=[Left("threads of a driver", 4, 4)],
        memory=[Growth(DRIVER, 3, [50.0, 0.0, 51.0, 51.0, 52.0, 52.0], 51.0, 51.5)],
        notes=["And so on."],
    )
    report.write(tmp_path / "soak.json")
    assert Report.read(tmp_path / "soak.json") == report
    text = report.markdown()
    for line in (
        "| fed | 12,345 |",
        "| driver killed | 3 | 1.00 | 2.00 | 2.50 |",
        "| driver | 3 | 50 | | 51 | 51 | 52 | 52 | 51.0 | 51.5 |",
        "| PULSAR_TIMEOUT | 1 |",
    ):
        assert line in text
