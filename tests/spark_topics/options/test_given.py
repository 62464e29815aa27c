# SPDX-License-Identifier: Apache-2.0
"""Tests of `spark_topics.options.given`, with options of a protocol made up here."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

import pytest

from spark_topics.options import given as module
from spark_topics.options.given import Given, KnownOptions
from spark_topics.options.spec import (
    OptionSpec,
    Scope,
    Support,
    option,
    set_by,
    specs_of,
)
from spark_topics.options.values import boolean, integer, plain_text
from tests.spark_topics.numbers import NUMBERS, OptionError

MASTER = OptionSpec(
    "tube.master", None, plain_text, Scope.CLIENT, "Where it is.", ("masterUrl",)
)
BACKUP = OptionSpec("tube.backup", None, plain_text, Scope.CLIENT, "The other one.")


@dataclass(frozen=True)
class Model:
    """Options of reads and writes."""

    master: str = field(default="nowhere", metadata=set_by(MASTER, BACKUP))
    rows: int = option("rows", "10", integer(1, 100), Scope.READ, "Rows.")
    is_fast: bool = option("fast", "false", boolean, Scope.CLIENT, "Whether fast.")
    last: int | None = option("last", None, integer(1, 9), Scope.BATCH, "Last one.")
    delay: int | None = option("delay", None, integer(1, 9), Scope.STREAM, "Delay.")
    keys: bool = option("keys", "true", boolean, Scope.WRITE, "Whether with keys.")
    is_stream: bool = False


KNOWN = KnownOptions(
    (
        *specs_of(Model),
        OptionSpec(
            "column",
            None,
            plain_text,
            Scope.READ,
            "A column.",
            in_writes="choose columns instead",
        ),
        OptionSpec(
            "end",
            None,
            integer(1, 9),
            Scope.BATCH,
            "End.",
            in_streams="a stream has no end",
        ),
        OptionSpec(
            "tube.tls",
            None,
            plain_text,
            Scope.CLIENT,
            "",
            support=Support.REFUSED,
            harmless=frozenset(["false"]),
            hint="Use a tunnel.",
        ),
        OptionSpec(
            "tube.threads", None, plain_text, Scope.CLIENT, "", (), Support.IGNORED
        ),
    ),
    NUMBERS,
    ignored_prefix="tube.admin.",
)


@pytest.fixture(autouse=True)
def _nothing_warned_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_warned", set())


def batch(**options: str) -> Given:
    """Options of a batch read, dots of names written as two underscores."""
    named = {name.replace("__", "."): text for name, text in options.items()}
    return Given(named, KNOWN, Scope.BATCH)


def test_a_model_is_filled_field_by_field() -> None:
    """What is not given has its default; what is given beside the options wins."""
    given = batch(tube__master="a", ROWS="7", fast="TRUE")
    assert given.fill(Model, is_stream=True) == Model("a", 7, True, is_stream=True)
    assert given.fill(Model, rows=8).rows == 8
    assert batch().fill(Model) == Model()


def test_the_first_of_several_options_counts() -> None:
    """A field that several options may set takes them in the order declared."""
    assert batch(tube__backup="b").fill(Model).master == "b"
    assert batch(tube__backup="b", masterurl="a").fill(Model).master == "a"


def test_values_by_name() -> None:
    """Names are compared without case and dots, aliases are names."""
    given = batch(TubeMaster="a")
    assert given["tube.master"] == given["masterUrl"] == "a"
    assert "masterurl" in given
    assert given["rows"] == 10
    assert "rows" not in given
    assert given["last"] is None


def test_a_name_that_is_no_option_is_our_own_mistake() -> None:
    """A check that asks for it would never find anything."""
    with pytest.raises(KeyError):
        batch()["row"]
    with pytest.raises(KeyError):
        assert "row" not in batch()


def test_a_value_with_a_problem_counts_as_given() -> None:
    """It is one problem, and not missing as well; the model has its default."""
    for text in ("x", " "):
        given = batch(rows=text)
        assert "rows" in given
        assert given["rows"] == 10
        assert given.fill(Model).rows == 10
        assert len(given.problems) == 1


def test_bytes_that_are_not_utf_8() -> None:
    """As a shell may give them: no text of a request can have them."""
    given = batch(**{"tube.master": "caf\udce9"})
    assert given.problems == ["tube.master has bytes that are not UTF-8."]


@pytest.mark.parametrize("text", ["last", "tube.mastr"])
def test_a_value_that_resembles_a_name(text: str) -> None:
    """The name is what is wrong, not the order of the two."""
    given = Given({"partitionBy": text}, KNOWN, Scope.BATCH)
    assert given.problems == ["There is no option 'partitionBy'."]


def test_all_problems_at_once() -> None:
    """Each has its sentence, and checks made later add theirs."""
    given = Given(
        {
            "rows": "0",
            "fasst": "1",
            "tube.tls": "true",
            "masterUrl": "a",
            "tube.master": "b",
            "last": "",
        },
        KNOWN,
        Scope.BATCH,
    )
    given.problems.append("And one more.")
    with pytest.raises(OptionError) as caught:
        given.finish(quiet=False)
    assert caught.value.problems == (
        "rows must be between 1 and 100, not 0.",
        "There is no option 'fasst'. Did you mean fast?",
        "tube.tls is not supported yet by this version. Use a tunnel.",
        (
            "tube.master is given twice with different values, as masterUrl and as"
            " tube.master."
        ),
        "last is empty: set it or leave it out.",
        "And one more.",
    )


@pytest.mark.parametrize(
    ("use", "name", "problem"),
    [
        (
            Scope.STREAM_WRITE,
            "column",
            "column is an option of reading: choose columns instead.",
        ),
        (
            Scope.STREAM,
            "end",
            "end is an option of batch reads: a stream has no end.",
        ),
    ],
)
def test_options_of_other_uses(use: Scope, name: str, problem: str) -> None:
    """They are a mistake, whatever their value, where that would be no such use."""
    assert Given({name: "x"}, KNOWN, use).problems == [problem]


@pytest.mark.parametrize(
    ("use", "name"),
    [
        (Scope.BATCH, "keys"),
        (Scope.STREAM, "keys"),
        (Scope.STREAM, "last"),
        (Scope.BATCH, "delay"),
        (Scope.BATCH_WRITE, "rows"),
        (Scope.STREAM_WRITE, "end"),
        (Scope.BATCH, "path"),
        (Scope.STREAM_WRITE, "paths"),
    ],
)
def test_a_shared_set_of_options(
    use: Scope, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """What is for other uses, or is Spark's own, is ignored with a warning."""
    given = Given({name: "secret"}, KNOWN, use)
    assert name not in (spec.name for spec in specs_of(Model) if spec.name in given)
    given.finish(quiet=False)
    (record,) = caplog.records
    assert record.getMessage().endswith(f"and are ignored: {name}")


def test_warnings_are_said_once(caplog: pytest.LogCaptureFixture) -> None:
    """Of what differs, and of what has no effect beside others."""
    for quiet in (True, False, False):
        given = Given({"MASTERURL": "a", "rows": "5"}, KNOWN, Scope.BATCH)
        given.warnings.append("This differs.")
        given.has_no_effect("rows")
        given.has_no_effect("fast")
        assert given["rows"] == 5
        assert given.key_of("tube.master") == "MASTERURL"
        assert given.key_of("fast") == ""
        given.finish(quiet=quiet)
    assert [record.getMessage() for record in caplog.records] == [
        "These options have no effect on this read, and are ignored: rows",
        "This differs.",
    ]


def test_names_of_others() -> None:
    """What is an option elsewhere has a sentence of its own."""
    known = KnownOptions(
        (), NUMBERS, problem_of_other=lambda key: f"{key}!" * (key == "k")
    )
    assert Given({"k": "", "l": ""}, known, Scope.BATCH).problems == [
        "k!",
        "There is no option 'l'.",
    ]


def test_what_is_ignored_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    """By name and without a value, for each kind of use."""
    options = {
        "tube.threads": "secret",
        "Tube.Admin.Token": "secret",
        "delay": "x",
        "fast": "true",
        "tube.tls": "False",
    }
    for _ in range(2):
        given = Given(options, KNOWN, Scope.BATCH)
        given.leave_out("fast")
        given.leave_out("rows")
        assert given.fill(Model) == Model()
        given.finish(quiet=False)
    assert caplog.record_tuples == [
        (
            "numbers_spark.options",
            logging.WARNING,
            (
                "These options have no effect on this read, and are ignored:"
                " Tube.Admin.Token, delay, fast, tube.threads"
            ),
        )
    ]
    Given({"tube.threads": "1"}, KNOWN, Scope.BATCH_WRITE).finish(quiet=True)
    assert len(caplog.records) == 1


def test_what_is_left_out_was_checked() -> None:
    """A value that cannot be is a problem all the same."""
    given = batch(fast="x")
    given.leave_out("fast")
    assert given.problems == ["fast must be true or false, not 'x'."]


def test_two_options_of_one_name() -> None:
    """They are our own mistake; an alias that only repeats the name is none."""
    again = OptionSpec("TubeMaster", None, plain_text, Scope.READ, "")
    with pytest.raises(AssertionError, match="tubemaster"):
        KnownOptions((MASTER, again), NUMBERS)
    same = OptionSpec("a.b", None, plain_text, Scope.READ, "", ("aB",))
    assert KnownOptions([same], NUMBERS)["AB"] is same
    assert KnownOptions([same], NUMBERS).get("c") is None
    assert not KnownOptions([same], NUMBERS).ignores("tube.admin.x")
