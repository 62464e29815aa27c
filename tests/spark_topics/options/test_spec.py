# SPDX-License-Identifier: Apache-2.0
"""Tests of `spark_topics.options.spec`: options of a protocol made up here."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from spark_topics.errors import OptionError
from spark_topics.options.spec import (
    OptionSpec,
    Scope,
    option,
    set_by,
    specs_by_field,
    specs_of,
)
from spark_topics.options.values import boolean, integer, plain_text

HOST = OptionSpec("host", None, plain_text, Scope.CLIENT, "Where it is.")
OLD_HOST = OptionSpec("oldHost", None, plain_text, Scope.CLIENT, "Where it was.")


@dataclass(frozen=True)
class Model:
    """A few options."""

    plain: str
    host: str = field(metadata=set_by(HOST, OLD_HOST))
    rows: int = option("rows", "10", integer(1, 100), Scope.READ, "Rows.", "lines")
    most: int | None = option("most", None, integer(1, 9), Scope.STREAM, "Most.")
    other_host: str = field(default="", metadata=set_by(HOST))


def test_the_default_is_written_once() -> None:
    """A field's default is that of its option, as a value."""
    model = Model("p", "h")
    assert (model.rows, model.most) == (10, None)
    (rows,) = specs_by_field(Model)["rows"]
    assert (rows.default, rows.default_value) == ("10", 10)
    assert rows.aliases == ("lines",)
    (most,) = specs_by_field(Model)["most"]
    assert (most.default, most.default_value) == (None, None)


def test_a_default_that_cannot_be_is_found_at_once() -> None:
    """It is parsed when the field is declared."""
    with pytest.raises(OptionError, match="rows must be between 1 and 5, not 6"):
        option("rows", "6", integer(1, 5), Scope.READ, "Rows.")


def test_fields_without_an_option_have_none() -> None:
    """Each other field names its options, and an option stands once in the list."""
    assert list(specs_by_field(Model)) == ["host", "rows", "most", "other_host"]
    assert [spec.name for spec in specs_of(Model, Model)] == [
        "host",
        "oldHost",
        "rows",
        "most",
    ]


def test_parsers_are_given_the_name() -> None:
    """So that errors say which option is meant."""
    spec = OptionSpec("sure", "true", boolean, Scope.WRITE, "Sure.")
    with pytest.raises(OptionError, match="sure must be true or false"):
        spec.parse("x", spec.name)
    assert spec.available
    assert spec.scope_text == "write"
