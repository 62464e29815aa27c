# SPDX-License-Identifier: Apache-2.0
"""Tests of `spark_topics.options.of_table`."""

from __future__ import annotations

import pytest

from spark_topics.options.of_table import options_of_table

OPTIONS = {"service.url": "pulsar://h:6650", "topic": "orders"}
TWICE = {**OPTIONS, **{f"option.{name}": text for name, text in OPTIONS.items()}}
ADDED = {"provider": "pulsar", "owner": "me", "comment": "of orders"}


@pytest.mark.parametrize(
    "added", [ADDED, {**ADDED, "path": "file:/t", "location": "file:/t", "a.b": "1"}]
)
def test_what_options_named(added: dict[str, str]) -> None:
    """And nothing of what Spark adds, nor of the table's properties."""
    assert options_of_table({**TWICE, **added}) == OPTIONS


def test_names_in_any_case() -> None:
    """As Spark's maps of options have them."""
    given = {"Provider": "pulsar", "Topic": "orders", "OPTION.Topic": "orders"}
    assert options_of_table(given) == {"Topic": "orders"}


def test_no_table() -> None:
    """Options of a read or a view have no provider."""
    assert options_of_table(OPTIONS) is None


def test_a_table_without_options() -> None:
    """Then there are none."""
    assert options_of_table({"provider": "pulsar", "owner": "me"}) == {}
