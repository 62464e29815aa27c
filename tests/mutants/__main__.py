# SPDX-License-Identifier: Apache-2.0
"""Finds out which mistakes the tests do not notice: ``make mutants``, or this module.

python -m tests.mutants --module wire/permits --budget 10m

Each mutant of a module runs the unit tests of that module. One that passes them all has
survived: either a test is missing, or nobody could notice, as with a hint that only
costs time. The latter are named in survivors.txt, each with its reason; any other
survivor fails the run, and so does a name in that file that has become wrong.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import sys
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from tests.mutants.mutators import Mutant, as_here, mutants
from tests.mutants.runner import (
    KILLED,
    NOT_RUN,
    SURVIVED,
    Baseline,
    Run,
    Stage,
    Target,
    baseline,
    preload,
    start,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

SURVIVORS = Path(__file__).parent / "survivors.txt"

#: Of the mutants that ran; those with a reason to survive are few.
_LEAST_KILLED = 0.95

TARGETS = [
    Target("wire/permits", ("wire/test_permits.py",)),
    Target("source/plan/ranges", ("source/plan/test_ranges.py",)),
    Target("source/plan/split", ("source/plan/test_split.py",)),
    Target("source/stream/checkpoint", ("source/stream/test_checkpoint.py",)),
    Target("source/stream/last_read", ("source/stream/test_last_read.py",)),
    Target("options/offsets", ("options/test_offsets.py",)),
    Target("options/times", ("options/test_offsets.py",), package="spark_topics"),
    Target("message_id", ("test_message_id.py", "options/test_offsets.py")),
    Target(
        "source/stream/admission",
        ("spark_topics/source/stream/test_admission.py",),
        package="spark_topics",
    ),
    Target("source/parts", ("source/plan/test_split.py",), package="spark_topics"),
    Target("sink/commit_log", ("sink/test_commit_log.py",)),
    Target(
        "sink/commit_protocol",
        ("sink/test_exactly_once.py", "sink/test_commit_protocol.py"),
        but=(  # these find the same as the others, in more time
            "test_every_step[-2-20000]",
            "test_every_step[expiry-1-20000]",
            "test_the_model_itself",
        ),
    ),
    Target("wire/compression", ("wire/test_compression.py",)),
    Target("wire/zstd", ("wire/test_zstd.py",)),
    Target("wire/outgoing", ("wire/test_outgoing.py",)),
    Target(
        "wire/commands",
        (
            "wire/test_commands.py",
            "wire/test_command_sizes.py",
            "wire/test_protocol.py",
        ),
    ),
    Target("wire/chunks", ("wire/test_chunks.py",)),
    Target("protobuf", ("spark_topics/test_protobuf.py",), package="spark_topics"),
    Target("wire/protocol", ("wire/test_protocol.py", "source/read/test_bulk.py")),
    Target("wire/frames", ("wire/test_frames.py",)),
    Target("wire/entries", ("wire/test_entries.py",)),
    Target("loops/messages", ("loops/test_messages.py", "wire/test_entries.py")),
    Target(
        "loops/sends",
        ("loops/test_sends.py", "wire/test_outgoing.py"),
        but=tuple(f"test_the_same_as_protobuf[python-{n}]" for n in range(2, 6)),
    ),
    Target("loops/deliveries", ("loops/test_deliveries.py",)),
    Target("loops/avro", ("arrow/values/test_avro.py",)),
    Target("loops/avro_write", ("arrow/values/test_avro_encoder.py",)),
    Target("schemas/resolution", ("schemas/test_resolution.py",)),
]


@dataclass(frozen=True)
class Known:
    """A mutant that may survive.

    Attributes:
        module: Where it is.
        key: As of the mutant.
        reason: Why nobody notices.
    """

    module: str
    key: tuple[str, str, str]
    reason: str


def read_known(text: str) -> list[Known]:
    """What survivors.txt says.

    A paragraph names a mutant: the module and the function, the statement as it is
    behind ``-``, with the mistake behind ``+``, and the reason behind ``#``. Several
    mistakes in one statement may share a reason.

    Raises:
        ValueError: A paragraph is not of this form.
    """
    found = []
    for paragraph in re.split(r"\n{2,}", text.strip()):
        lines = paragraph.splitlines()
        if all(line.startswith("#") for line in lines):
            continue  # about the file
        form = r"(\S+) (\S+)\n- (.*)\n((?:\+.*\n)+)((?:# .*\n?)+)"
        if (match := re.fullmatch(form, "\n".join(lines))) is None:
            raise ValueError(f"not a survivor and its reason:\n{paragraph}")
        module, where, before, mistakes, reason = match.groups()
        for mistake in mistakes.splitlines():
            after = mistake.removeprefix("+").removeprefix(" ")
            found.append(
                Known(module, (where, as_here(before), as_here(after)), reason)
            )
    return found


def describe(target: Target, mutant: Mutant) -> str:
    """A mutant as survivors.txt names it, and where it is today."""
    where, before, after = mutant.key
    return (
        f"{target.module} {where}\n- {before}\n+ {after}".rstrip()
        + f"\n  (line {mutant.lines.start})"
    )


@dataclass
class Score:
    """How one module did."""

    target: Target
    all: int = 0
    killed: int = 0
    survived: int = 0
    unknown: int = 0

    def __str__(self) -> str:
        ran = self.killed + self.survived
        rate = f"{self.killed / ran:6.1%}" if ran else "     -"
        return (
            f"{self.target.module:18} {rate} killed: {self.killed} of {ran} run, "
            f"of {self.all}; {self.unknown} survived without a reason"
        )


def main() -> int:
    """Run the mutants asked for; 0 if all is as survivors.txt says."""
    arguments = _arguments()
    chosen = arguments.module or [target.module for target in TARGETS]
    targets = [target for target in TARGETS if target.module in chosen]
    known = read_known(SURVIVORS.read_text())
    end = time.monotonic() + arguments.budget if arguments.budget else float("inf")
    preload()
    problems: list[str] = []
    scores = []
    for number, target in enumerate(targets):
        left = (end - time.monotonic()) / (len(targets) - number)
        score = _run(target, known, problems, arguments, time.monotonic() + left)
        sys.stdout.write(f"{score}\n")
        sys.stdout.flush()
        scores.append(score)
    sys.stdout.write("\n".join(["", *map(str, scores), "", *problems]) + "\n")
    killed = sum(score.killed for score in scores)
    ran = killed + sum(score.survived for score in scores)
    sys.stdout.write(f"{killed} of {ran} mutants killed, {len(problems)} problems\n")
    return 1 if problems or killed < _LEAST_KILLED * ran else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser("tests.mutants", description=__doc__)
    names = [target.module for target in TARGETS]
    parser.add_argument("--module", action="append", choices=names, metavar="MODULE")
    parser.add_argument("--function", default="", help="only where this is in its name")
    parser.add_argument("--budget", type=_seconds, default=0, help="such as 10m; none")
    parser.add_argument("--seed", type=int, default=0, help="which ones go first")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    return parser.parse_args()


def _seconds(text: str) -> float:
    return float(text[:-1]) * {"s": 1, "m": 60, "h": 3600}[text[-1]]


def _run(
    target: Target,
    known: list[Known],
    problems: list[str],
    arguments: argparse.Namespace,
    end: float,
) -> Score:
    """Run the mutants of a module until they are over, or the time is."""
    queue = list(mutants(target.path.read_text()))
    keys = Counter(mutant.key for mutant in queue)
    expected = {one.key: one for one in known if one.module == target.module}
    for key in expected.keys() - keys.keys():
        problems.append(f"survivors.txt: no such mutant is left: {expected[key]}\n")
    score = Score(target, all=len(queue))
    random.Random(arguments.seed).shuffle(queue)
    queue = [mutant for mutant in queue if arguments.function in mutant.where]
    usual = baseline(target)
    survived: set[tuple[str, str, str]] = set()
    ran: Counter[tuple[str, str, str]] = Counter()
    for mutant, outcome in _outcomes(target, usual, queue, arguments.jobs, end):
        ran[mutant.key] += 1
        if ran.total() % 100 == 0:
            sys.stdout.write(f"so far: {score}\n")
            sys.stdout.flush()
        if outcome == KILLED:
            score.killed += 1
            continue
        score.survived += 1
        survived.add(mutant.key)
        if mutant.key not in expected:
            score.unknown += 1
            problems.append(f"survived:\n{describe(target, mutant)}\n")
            sys.stdout.write(problems[-1])
            sys.stdout.flush()
    for key in expected.keys() & keys.keys():
        if ran[key] == keys[key] and key not in survived:
            problems.append(f"survivors.txt: this one is killed: {expected[key]}\n")
    return score


@dataclass(eq=False)
class _Turn:
    """A mutant that runs, or is to.

    Attributes:
        mutant: The mutant.
        tests: Tests to run on it.
        rest: Those to run after them where it survives.
        on_stage: Whether a stage may run it.
        run: What runs it.
    """

    mutant: Mutant
    tests: Mapping[str, float]
    rest: Mapping[str, float]
    on_stage: bool
    run: Run | Stage = field(init=False)

    def following(self, outcome: int) -> _Turn | None:
        """What has to run before one knows whether the mutant survives."""
        if outcome == NOT_RUN:
            return replace(self, on_stage=False)
        if outcome == SURVIVED and self.rest:
            # One of them may run the line where another has run it for it before.
            return replace(self, tests=self.rest, rest={})
        return None


def _outcomes(
    target: Target, usual: Baseline, queue: list[Mutant], jobs: int, end: float
) -> Iterator[tuple[Mutant, int]]:
    """Each mutant that ran, with how it ended, a few at a time."""
    stages = [Stage(target, queue) for _ in range(jobs)]
    idle, fresh = list(stages), _turns(usual, queue, end)
    running: list[_Turn] = []
    again: list[_Turn] = []
    while True:
        while len(running) < jobs:
            turn = again.pop() if again else next(fresh, None)
            if turn is None:
                break
            turn.run = _begin(target, turn, idle)
            running.append(turn)
        if not running:
            break
        time.sleep(0.002)
        for turn in list(running):
            if (outcome := turn.run.over()) is None:
                continue
            running.remove(turn)
            usual.kills[turn.run.killer or ""] += 1
            if isinstance(turn.run, Stage):
                idle.append(turn.run)
            if (following := turn.following(outcome)) is None:
                yield turn.mutant, outcome
            else:
                again.append(following)
    for stage in stages:
        stage.close()


def _turns(usual: Baseline, queue: list[Mutant], end: float) -> Iterator[_Turn]:
    """What is to run first, as long as there is time."""
    for mutant in queue:
        if time.monotonic() >= end:
            return
        tests = usual.tests_of(mutant.lines)
        on_stage = usual.imported.isdisjoint(mutant.lines)
        yield _Turn(mutant, tests, usual.others(tests), on_stage)


def _begin(target: Target, turn: _Turn, idle: list[Stage]) -> Run | Stage:
    if not turn.on_stage:
        return start(target, turn.mutant.tree(), turn.tests)
    stage = idle.pop()
    stage.start(turn.mutant, turn.tests)
    return stage


if __name__ == "__main__":
    sys.exit(main())
