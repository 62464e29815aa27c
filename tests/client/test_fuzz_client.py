# SPDX-License-Identifier: Apache-2.0
"""A hostile or unlucky broker: each conversation ends right or in one clear error."""

from __future__ import annotations

import faulthandler
import logging
import os
import resource
import sys
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor, wait
from itertools import count

import pytest

from pulsar_spark.errors import PulsarSparkError
from tests.client.fuzz_client import converse, hurry

#: How many frames that are not what they should be ``make test`` has.
FEW = 4_000

#: How many there are in all. ``make soak`` asks for many more, in parts.
WANTED = int(os.environ.get("PULSAR_SPARK_FUZZ_FRAMES", FEW))

#: Most of them in a part.
FRAMES = 20_000

#: They take long then, and ``make test`` is not what asked for them.
LONG = [pytest.mark.soak] if WANTED > FEW else []

#: Where the seeds begin. A failure names its own, which can be put here.
SEED = int(os.environ.get("PULSAR_SPARK_FUZZ_SEED", 1))

#: Seeds from one part to the next: more than one part uses.
PART_SEEDS = 1_000_000

#: All limits in a conversation together are far below this, in seconds.
DEADLINE_S = 60.0

#: Conversations at a time. They mostly wait.
AT_ONCE = 8

#: memoryLimitBytes x 3 + 100 MiB.
MOST_MIB = 3 * 64 + 100


class Log(logging.Handler):
    """Keeps the lines that should not be: forged ones, and those about our faults."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.wrong: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Looks at a line."""
        text = record.getMessage()
        is_fine = text.isprintable() and len(text) < 5000
        if not is_fine or record.levelno >= logging.ERROR:
            self.wrong.append(f"{text} {record.exc_info}")


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Log:
    """What the client logs, on all levels, and nowhere else."""
    logger = logging.getLogger("pulsar_spark.client")
    one = Log()
    monkeypatch.setattr(logger, "handlers", [one])
    monkeypatch.setattr(logger, "propagate", False)
    monkeypatch.setattr(logger, "isEnabledFor", lambda level: True)
    return one


@pytest.mark.parametrize(
    "part",
    [pytest.param(part, marks=LONG) for part in range(max(1, WANTED // FRAMES))],
)
def test_whatever_a_broker_sends(
    monkeypatch: pytest.MonkeyPatch, log: Log, part: int
) -> None:
    """A correct result, or one error of ours, within its time and within memory."""
    hurry(monkeypatch)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    seeds = count(SEED + part * PART_SEEDS)
    frames = 0
    outcomes: Counter[str] = Counter()
    with ThreadPoolExecutor(AT_ONCE, "fuzz") as executor:
        while frames < min(WANTED, FRAMES):
            held = {}
            for _ in range(10 * AT_ONCE):
                seed = next(seeds)
                mutator, conversation, hold = converse(seed)
                where = f"seed {seed}, {conversation.__name__}"
                held[where] = mutator, executor.submit(hold)
            for where, (mutator, future) in held.items():
                outcomes[outcome(future, where)] += 1
                frames += mutator.frames
            assert not log.wrong, f"before seed {next(seeds)}: {log.wrong[:3]}"
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10
    sys.stdout.write(f"\n{frames} frames, {grown} MiB more: {dict(outcomes)}\n")
    assert outcomes["right"] > outcomes.total() / 10
    assert len(outcomes) > 3, "only some errors ever came up"
    assert grown < MOST_MIB


def outcome(future: Future[None], where: str) -> str:
    """How a conversation ended: "right", or the condition of its error."""
    wait([future], DEADLINE_S)
    if not future.done():
        faulthandler.dump_traceback(sys.__stderr__)
        pytest.fail(f"{where}: not over after {DEADLINE_S:g} s")
    error = future.exception()
    if error is None:
        return "right"
    if not isinstance(error, PulsarSparkError):
        raise AssertionError(f"{where}: {error!r}") from error
    assert str(error).isprintable(), where
    assert len(str(error)) < 5000, f"{where}: {str(error)[:2000]}"
    assert "secret" not in str(error), where
    return error.condition
