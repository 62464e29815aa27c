# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from pulsar_spark.message_id import MessageId
from pulsar_spark.source.plan.pruning import ColumnTest, Pruning
from pulsar_spark.topics import TopicName

PLAIN = TopicName.parse("plain")
PARTS = [TopicName.parse("parts").partition(n) for n in range(3)]
A, B = MessageId(5, 1), MessageId(6, 2, 3)


@pytest.mark.parametrize(
    ("name", "value", "kept"),
    [
        ("eq", 1, {1}),
        ("lt", 1, {0}),
        ("le", 1, {0, 1}),
        ("gt", 1, {2}),
        ("ge", 1, {1, 2}),
        ("in", (0, 2), {0, 2}),
        ("in", (), set()),
    ],
)
def test_tests_of_a_number(name: str, value: object, kept: set[int]) -> None:
    """A test holds as SQL says, and its negation for all the others."""
    for is_negated in (False, True):
        test = ColumnTest("__partition", name, value, is_negated)
        found = {number for number in range(3) if test.holds(number)}
        assert found == ({0, 1, 2} - kept if is_negated else kept)
        assert {type(test.holds(number)) for number in range(3)} == {bool}


@pytest.mark.parametrize(
    ("name", "value"), [("startswith", "ab"), ("endswith", "bc"), ("contains", "b")]
)
def test_tests_of_a_text(name: str, value: str) -> None:
    """A text is looked for where the test says; by default it is wanted there."""
    test = ColumnTest("__topic", name, value)
    assert test.holds("abc")
    assert not test.holds("cba" if name != "contains" else "ca")
    assert not ColumnTest("__topic", name, value, is_negated=True).holds("abc")


def test_pruning() -> None:
    """A topic partition is read where every test of its columns holds."""
    of_topic = ColumnTest("__topic", "endswith", "-partition-2")
    of_number = ColumnTest("__partition", "gt", 0)
    first, last, plain = PARTS[0], PARTS[2], PLAIN
    for tests, kept in (
        ((), [first, last, plain]),
        ((of_topic,), [last]),
        ((of_number,), [last, plain]),  # of NULL there is no telling
        ((of_number, of_topic), [last]),
        ((of_topic, ColumnTest("__partition", "lt", 1)), []),
        ((ColumnTest("__partition", "lt", 1),), [first, plain]),
    ):
        pruning = Pruning(tests)
        assert [t for t in (first, last, plain) if pruning.keeps(t)] == kept, tests
    assert Pruning() == Pruning((), None, None)
