# SPDX-License-Identifier: Apache-2.0
"""The benchmarks of TubeMQ still run. No figure is judged here."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from siblings.tubemq.tests.bench import bench_tubemq

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_decoding_of_tubemq() -> None:
    """Three kinds of messages, value only and all columns."""
    cases = [*bench_tubemq.run_decode(2000, 1)]
    assert len(cases) == 6
    assert {case.hop for case in cases} == {"tubemq-decode"}


def test_reads_of_tubemq_as_lines() -> None:
    """One partition beside its drain; by Spark all of them, beside theirs and Java."""
    names = ("drain", *bench_tubemq.COLUMNS, "drain all", "java", "spark")
    seconds = {name: [float(number + 1)] for number, name in enumerate(names)}
    cases = [*bench_tubemq.read_cases(bench_tubemq.KINDS[0], [30, 50], seconds)]
    assert [case.rows for case in cases] == [30, 30, 30, 80, 80, 80, 80]
    assert [case.ratio for case in cases if case.limit] == [
        *(1 / 2, 1 / 3),
        *(4 / 6, 5 / 6),
    ]
    assert [case.target for case in cases if case.target] == [0.8, 0.8]


@pytest.mark.soak
@pytest.mark.slow
def test_tubemq(spark: SparkSession) -> None:
    """Each kind once, with servers of its own; the benchmark itself counts the rows."""
    cases = [*bench_tubemq.run(spark, 20_000, 1)]
    assert [case.target for case in cases if case.target] == [5.0, *[0.8] * 8]
