# SPDX-License-Identifier: Apache-2.0
"""Tests of `pulsar_spark.topics`."""

from __future__ import annotations

import pickle
import random
import re
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pulsar_spark.errors import OptionError
from pulsar_spark.topics import (
    TopicName,
    TopicsPattern,
    compile_topics_pattern,
    sort_key,
    topic_column,
    topic_of,
)

FULL = "persistent://public/default/t"

namespace_parts = st.from_regex(r"[-=:.A-Za-z0-9_]{1,8}", fullmatch=True)
local_names = st.one_of(
    st.text(
        st.characters(exclude_characters="/", exclude_categories=["Cs"]), min_size=1
    ),
    st.builds("{}-partition-{}".format, st.just("t"), st.integers(0, 2**33)),
).filter(lambda name: name == name.strip() and "://" not in name)
topic_names = st.builds(TopicName, namespace_parts, namespace_parts, local_names)


@pytest.mark.parametrize("text", ["t", " t ", "public/default/t", FULL])
def test_forms_are_equal(text: str) -> None:
    """Every form of a name means the same topic."""
    assert TopicName.parse(text) == TopicName("public", "default", "t")
    assert TopicName.parse(text).full_name == FULL


def test_parts_of_a_name() -> None:
    """A full name comes apart into its parts."""
    topic = TopicName.parse("persistent://my-tenant/my.ns/ev-partition-12")
    assert (topic.tenant, topic.namespace) == ("my-tenant", "my.ns")
    assert topic.local_name == "ev-partition-12"
    assert topic.namespace_name == "my-tenant/my.ns"
    assert topic.partition_index == 12
    assert topic.base.full_name == "persistent://my-tenant/my.ns/ev"
    assert str(topic) == topic.full_name


@pytest.mark.parametrize(
    "text",
    [
        "persistent://tenant/cluster/ns/t",
        "persistent://tenant/cluster/ns/t/with/slashes-partition-3",
    ],
)
def test_legacy_names_are_printed_unchanged(text: str) -> None:
    """A v1 name with a cluster keeps it, as part of its namespace."""
    topic = TopicName.parse(text)
    assert topic.full_name == text
    assert topic.namespace_name == "tenant/cluster/ns"


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "/",
        "a/b",
        "a//t",
        "/t",
        "a/b/",
        "a/b/c/d",
        "a b/ns/t",
        "persistent://",
        "persistent://t",
        "persistent://a/b",
        "persistent://a/b/",
        "persistent://a/b/c/",
        "persistent:///ns/t",
        "kafka://a/b/c",
        "a/b/c://d",
        "\ud800",
    ],
)
def test_malformed_names_show_the_forms(text: str) -> None:
    """Anything else is refused with the three forms that are right."""
    with pytest.raises(OptionError) as caught:
        TopicName.parse(text)
    assert '"topic", "tenant/namespace/topic" or' in caught.value.message
    assert '"persistent://tenant/namespace/topic"' in caught.value.message
    str(caught.value).encode()


def test_non_persistent_topic_is_refused() -> None:
    """A non-persistent topic has nothing to read, and the error says so."""
    with pytest.raises(OptionError, match="keeps nothing to read") as caught:
        TopicName.parse("non-persistent://public/default/t")
    assert "Name a persistent topic" in caught.value.message


@pytest.mark.parametrize(
    ("local_name", "base", "index"),
    [
        ("t", "t", None),
        ("t-partition-0", "t", 0),
        ("t-partition-10", "t", 10),
        ("t-partition-1-partition-2", "t-partition-1", 2),
        ("t-partition-2147483647", "t", 2147483647),
        ("t-partition-2147483648", "t-partition-2147483648", None),
        ("t-partition-01", "t-partition-01", None),
        ("t-partition--1", "t-partition--1", None),
        ("t-partition-+1", "t-partition-+1", None),
        ("t-partition-", "t-partition-", None),
        ("t-partition-1x", "t-partition-1x", None),
        ("t-partition-\u0661", "t-partition-\u0661", None),
        ("t-partition-1\n", "t-partition-1\n", None),
        ("-partition-1", "-partition-1", None),
    ],
)
def test_only_canonical_suffixes_are_partitions(
    local_name: str, base: str, index: int | None
) -> None:
    """A partition suffix is a canonical decimal, as for the broker."""
    topic = TopicName("public", "default", local_name)
    assert topic.partition_index == index
    assert topic.base.local_name == base


@given(topic_names)
def test_full_names_round_trip(topic: TopicName) -> None:
    """A printed name reads back as the same topic."""
    assert TopicName.parse(topic.full_name) == topic
    assert TopicName.parse(topic.full_name.removeprefix("persistent://")) == topic


@given(topic_names, st.integers(0, 2**31 - 1))
def test_partitions_know_their_topic(topic: TopicName, index: int) -> None:
    """A partition has its number, and the topic as its base; a topic is its own."""
    partition = topic.partition(index)
    assert partition.partition_index == index
    assert partition.base == topic
    assert topic_of(partition.full_name) == topic.full_name
    assert topic_of(topic.full_name) == topic.base.full_name


@pytest.mark.parametrize("index", [-1, 2**31])
def test_impossible_partitions_are_refused(index: int) -> None:
    """No name is made for a partition that cannot be."""
    with pytest.raises(ValueError, match="not a partition number"):
        TopicName.parse("t").partition(index)


@given(st.text())
def test_any_text_is_a_name_or_an_option_error(text: str) -> None:
    """No text makes the parser fail in another way."""
    try:
        topic = TopicName.parse(text)
    except OptionError:
        return
    assert TopicName.parse(topic.full_name) == topic


def test_names_sort_naturally() -> None:
    """Partition 2 comes before partition 10, and both right after their topic."""
    names = [
        "a/a/z",
        "a/b/t",
        "a/b/t-partition-0",
        "a/b/t-partition-2",
        "a/b/t-partition-10",
        "a/b/t1",
    ]
    topics = [TopicName.parse(name) for name in names]
    shuffled = random.Random(7).sample(topics, len(topics))
    assert sorted(shuffled) == topics
    assert topics[0] < topics[1] <= topics[2]
    assert topics[2] >= topics[1] > topics[0]


@given(topic_names, topic_names)
def test_order_is_total(one: TopicName, other: TopicName) -> None:
    """Of two names, exactly one relation holds."""
    assert [one < other, one == other, one > other].count(True) == 1


def test_names_compare_with_names_only() -> None:
    """A name and a text have no order."""
    with pytest.raises(TypeError):
        assert TopicName.parse("t") < "t"


def test_values_survive_pickling() -> None:
    """Names and patterns can be sent to executors."""
    topic = TopicName.parse("t-partition-3")
    pattern = compile_topics_pattern("ev.*")
    twins = pickle.loads(pickle.dumps((topic, pattern)))  # noqa: S301 - our own bytes
    assert twins == (topic, pattern)
    assert hash(twins[0]) == hash(topic)


@pytest.mark.parametrize(
    "text",
    [
        "persistent://public/default/ev.*",
        "public/default/ev.*",
        "ev.*",
        "^ev.*$",
        "^public/default/ev.*$",
        "^persistent://public/default/ev.*",
    ],
)
def test_pattern_forms_are_equal(text: str) -> None:
    """Every form of a pattern finds the same topics."""
    pattern = compile_topics_pattern(text)
    assert pattern.namespace_name == "public/default"
    assert pattern.matches("persistent://public/default/events")
    assert pattern.matches("persistent://public/default/events-partition-3")
    assert not pattern.matches("persistent://public/default/my-events")
    assert not pattern.matches("persistent://public/other/events")
    assert not pattern.matches("non-persistent://public/default/events")
    assert not pattern.matches("ev//")


def test_pattern_covers_the_whole_name_without_suffix() -> None:
    """A match of a part of the name, or of the suffix, is no match."""
    pattern = compile_topics_pattern(r"t\d")
    assert pattern.matches("persistent://public/default/t1-partition-0")
    assert not pattern.matches("persistent://public/default/t12")
    by_suffix = compile_topics_pattern(".*-partition-0")
    assert not by_suffix.matches("persistent://public/default/t1-partition-0")


def test_pattern_alternatives_are_all_in_the_namespace() -> None:
    """Alternatives need no brackets, and flags may stand first."""
    pattern = compile_topics_pattern("a/b/x|y")
    assert pattern.matches("persistent://a/b/x")
    assert pattern.matches("persistent://a/b/y")
    assert compile_topics_pattern("a/b/(?i)X").matches("persistent://a/b/x")


_BEFORE = st.sampled_from(
    ["", "public/default/", "^public/default/", "persistent://public/default/"]
)
_LOCAL = st.lists(
    st.sampled_from(["a", "b", "-.*", "(a|b)", "[^/]", "[|]", r"\|", "((a|-)b)?", "$"]),
    min_size=1,
    max_size=3,
).map("".join)


@given(
    st.lists(st.tuples(_BEFORE, _LOCAL), min_size=1, max_size=4),
    st.text("ab-|", min_size=1, max_size=4),
)
@example([("public/default/", "a-.*"), ("public/default/", "b-.*")], "b-1")
def test_each_alternative_may_name_the_namespace(
    alternatives: list[tuple[str, str]], name: str
) -> None:
    """A topic matches whose whole name, or local name, an alternative matches."""
    pattern = compile_topics_pattern("|".join(map("".join, alternatives)))
    is_named = any(re.fullmatch(local, name) for _, local in alternatives)
    assert pattern.matches(f"persistent://public/default/{name}") == is_named


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a/b/x|a/c/y", "names topics of a/b and of a/c"),
        ("x|a/c/y", "names topics of public/default and of a/c"),
        ("a/b/x|c/y", "is not a pattern of topic names"),
        ("a/b/(x|a/b/y)", "has a slash after the namespace"),
        ("a/b/x/y", "has a slash after the namespace"),
        (r"a/b/x|a\/b\/y", "must be written literally"),
        ("a/b/x|a/.*/y", "must be written literally"),
        ("a/b/x|non-persistent://a/b/y", "keeps nothing to read"),
    ],
)
def test_no_alternative_is_passed_over(text: str, why: str) -> None:
    """What could match no topic of the namespace is refused."""
    with pytest.raises(OptionError, match=why):
        compile_topics_pattern(text)


@pytest.mark.parametrize(
    "name",
    [
        "__change_events",
        "__change_events-partition-0",
        "__transaction_buffer_snapshot",
        "t-sub__transaction_pending_ack",
        "t-partition-0-sub__transaction_pending_ack",
    ],
)
def test_system_topics_never_match(name: str) -> None:
    """Pulsar's own records are not read by a pattern."""
    full_name = f"persistent://public/default/{name}"
    assert TopicName.parse(full_name).is_system_topic
    assert not compile_topics_pattern(".*").matches(full_name)


@pytest.mark.parametrize(
    "name",
    ["spark-commits-q", "spark-commits-q-markers", "spark-commits-q-partition-0"],
)
def test_logs_of_the_sink_never_match(name: str) -> None:
    """Nor are ours, which are named where they are wanted."""
    pattern = compile_topics_pattern(".*")
    assert not pattern.matches(f"persistent://public/default/{name}")
    assert pattern.matches("persistent://public/default/my-spark-commits-q")


def test_ordinary_topics_are_no_system_topics() -> None:
    """Only Pulsar's own forms count."""
    assert not TopicName.parse("events").is_system_topic
    assert not TopicName.parse("_events__").is_system_topic


@pytest.mark.parametrize("text", ["public/.*/ev", "pub.+/default/ev", "(a|b)/c/d"])
def test_namespace_must_be_literal(text: str) -> None:
    """A pattern over namespaces is refused with the reason."""
    with pytest.raises(OptionError, match="must be written literally"):
        compile_topics_pattern(text)


@pytest.mark.parametrize(
    "text", ["", "a/b", "a/b/", "/b/c", "persistent://", "persistent://t"]
)
def test_incomplete_pattern_shows_the_forms(text: str) -> None:
    """A pattern without all its parts is refused with the forms."""
    with pytest.raises(OptionError, match='"tenant/namespace/regex"'):
        compile_topics_pattern(text)


def test_pattern_of_another_scheme_is_refused() -> None:
    """Only persistent topics can be matched."""
    with pytest.raises(OptionError, match=r"topicsPattern: .* keeps nothing to read"):
        compile_topics_pattern("non-persistent://a/b/c.*")
    with pytest.raises(OptionError, match=r"topicsPattern: .* is not a topic name"):
        compile_topics_pattern("http://a/b/c.*")


@pytest.mark.parametrize(
    ("text", "reason", "position"),
    [
        ("ev(", "missing ), unterminated subpattern", 2),
        ("public/default/ev[", "unterminated character set", 17),
        (" persistent://public/default/*", "nothing to repeat", 29),
        (r"public/default/\p{L}+", r"bad escape \p", 15),
        (" public/default/a|public/default/*", "nothing to repeat", 33),
        ("public/default/a|public/default/b|c)", "unbalanced parenthesis", 35),
    ],
)
def test_bad_regex_names_reason_and_place(
    text: str, reason: str, position: int
) -> None:
    """A bad expression is refused with Python's reason and the place in the text."""
    with pytest.raises(OptionError) as caught:
        compile_topics_pattern(text, option="topicsPattern")
    message = caught.value.message
    assert message.startswith("topicsPattern: ")
    assert "Python regular expression" in message
    assert f"{reason} at position {position}" in message


@pytest.mark.parametrize("text", ["a{99999999999999999999}", "(" * 5000 + ")" * 5000])
def test_monstrous_regex_is_an_option_error(text: str) -> None:
    """What Python's compiler gives up on is refused as any other bad expression."""
    with pytest.raises(OptionError, match="not a valid Python regular expression"):
        compile_topics_pattern(text)


def test_pattern_keeps_the_text() -> None:
    """A pattern can be shown as it was written."""
    pattern = compile_topics_pattern("ev.*")
    assert isinstance(pattern, TopicsPattern)
    assert pattern.text == "ev.*"


@pytest.mark.parametrize(
    ("pattern", "for_brokers"),
    [
        ("events-.*", "(?s)public/default/events-.*"),
        ("^events-.*$", "(?s)public/default/events-.*"),
        ("a/b.c/t", "(?s)a/b.c/t(-p.*)?"),
        (r"t\.[a-z0-9]+", r"(?s)public/default/t\.[a-z0-9]+(-p.*)?"),
        ("a|b", "(?s)public/default/(a|b)(-p.*)?"),
        ("public/default/a|public/default/b", "(?s)public/default/(a|b)(-p.*)?"),
        ("(a|b)-.*", "(?s)public/default/((a|b)-.*)(-p.*)?"),
        ("a?b+c*.", "(?s)public/default/a?b+c*.(-p.*)?"),
        # What brokers may take for something else, or be at for ever.
        (r"\d+", ""),
        (r"\w", ""),
        ("(?i)events", ""),
        ("(?P<n>a)", ""),
        ("(a+)+", ""),
        ("(a)*", ""),
        ("a*?", ""),
        ("[^a]", ""),
        ("a{2}", ""),
        ("größe", ""),
        ("t\\$", ""),
    ],
)
def test_patterns_for_brokers(pattern: str, for_brokers: str) -> None:
    """What means the same to all: namespace, expression, and any partition."""
    assert compile_topics_pattern(pattern).for_brokers == for_brokers


_PIECES = st.sampled_from(
    ["a", "b", "-", "x1", ".", ".*", "a+", "b?", "[ab]", "[a-z]*", "(", ")", "|", "^"]
)


@given(st.lists(_PIECES, max_size=6).map("".join), st.from_regex(r"[abx1\n-]{0,5}"))
@example("a", "a\r")
@example("a", "a\n")
def test_brokers_leave_out_no_topic_that_matches(text: str, name: str) -> None:
    """Nor any partition of it."""
    try:
        pattern = compile_topics_pattern(f"t/n/{text}")
    except OptionError:
        return
    for local_name in name, f"{name}-partition-3":
        topic = f"t/n/{local_name}"
        if pattern.for_brokers and pattern.matches(f"persistent://{topic}"):
            assert re.fullmatch(pattern.for_brokers, topic)


SEGMENT = "segment://public/default/t/0000-7fff-12"


def test_scalable_topics() -> None:
    """Those of Pulsar 5, and their segments, have a scheme of their own."""
    topic = TopicName.parse("topic://public/default/t")
    segment = TopicName.parse(SEGMENT)
    assert (topic.is_scalable, topic.is_segment, topic.partition_index) == (
        True,
        False,
        None,
    )
    assert (segment.partition_index, segment.key) == (12, "0000-7fff-12")
    assert segment.base == topic
    assert topic.segment(0, 0x7FFF, 12) == segment
    assert list(topic.names_below(["0000-7fff-12"])) == [SEGMENT]
    assert topic.full_name == "topic://public/default/t"
    ordinary = TopicName.parse("t-partition-3")
    for name in (topic, segment, ordinary):
        assert name.common_name == "persistent://public/default/t"
        assert name.scalable_name == "topic://public/default/t"
    # Only ordinary topics have partitions.
    name = TopicName.parse("topic://public/default/t-partition-3")
    assert name.partition_index is None
    assert (topic_column(SEGMENT), topic_column(ordinary.full_name)) == (
        "topic://public/default/t",
        "persistent://public/default/t-partition-3",
    )


@pytest.mark.parametrize(
    "text",
    [
        "topic://t",
        "topic://a/b/c/d",
        "segment://a/b/t",
        "segment://a/b/t/0-1-0",
        "segment://a/b/t/0000-FFFF-0",
        "segment://a/b/t/0000-ffff-00",
        "segment://a/b/0000-ffff-0",
    ],
)
def test_malformed_names_of_scalable_topics(text: str) -> None:
    """A segment is named as brokers name it."""
    with pytest.raises(OptionError, match="is not a topic name"):
        TopicName.parse(text)


def test_segments_in_order() -> None:
    """By their ids, behind the partitions that a topic had before it was migrated."""
    names = [
        TopicName.parse(text)
        for text in (
            "persistent://public/default/t",
            "t-partition-0",
            "t-partition-11",
            "segment://public/default/t/8000-ffff-2",
            SEGMENT,
            "topic://public/default/t",
        )
    ]
    assert sorted(names[3:] + names[:3]) == names


def test_a_pattern_matches_scalable_topics() -> None:
    """By the same part of the name, with or without a scheme."""
    for text in ("t", "topic://public/default/t", "persistent://public/default/t"):
        pattern = compile_topics_pattern(text)
        assert pattern.matches("topic://public/default/t")
        assert pattern.matches(SEGMENT)
        assert not pattern.matches("topic://public/default/tt")


_PARTITION = re.compile(r"(.+)-partition-(0|[1-9][0-9]{0,9})", re.DOTALL)


@given(
    st.lists(
        st.sampled_from(["-partition-", "t", "0", "7", "2147483648", "\u0663", "\xb2"]),
        min_size=1,
        max_size=5,
    )
)
def test_numbers_of_partitions(pieces: list[str]) -> None:
    """What follows the last ``-partition-`` is one if it is written as brokers do."""
    name = TopicName("a", "b", "".join(pieces))
    match = _PARTITION.fullmatch(name.local_name)
    index = None if match is None else int(match[2])
    if index is None or index >= 2**31:
        assert (name.base, name.partition_index) == (name, None)
    else:
        assert (name.base.partition(index), name.partition_index) == (name, index)


def test_more_digits_than_a_number_may_have() -> None:
    """The name is that of a whole topic."""
    assert TopicName.parse(f"t-partition-{'1' * 10_000}").partition_index is None


@given(topic_names, st.lists(st.integers(0, 2**31 - 1)))
def test_names_of_partitions(topic: TopicName, indices: list[int]) -> None:
    """They are those of ``partition``."""
    names = [topic.partition(index).full_name for index in indices]
    assert list(topic.partition_names(indices)) == names


@pytest.mark.parametrize(
    "base", ["persistent://t/n/a", "persistent://t/n/a b", "persistent://t/c/n/a"]
)
def test_names_of_many_partitions(base: str) -> None:
    """Each is its topic's and a number, also where that is not a partition's."""
    topic = TopicName.parse(base)
    for suffix in ("-partition-0", "-partition-12", "-partition-007"):
        name = TopicName.parse(f" {base}{suffix}\n")
        assert name == replace(topic, local_name=topic.local_name + suffix)
        assert name.full_name == base + suffix
    assert TopicName.parse("persistent://t/n/-partition-3").local_name == "-partition-3"
    with pytest.raises(OptionError, match="'persistent://t n/n/a-partition-3' is not"):
        TopicName.parse("persistent://t n/n/a-partition-3")


@pytest.mark.parametrize(
    "name",
    [
        "persistent://a/b/t",
        "persistent://a/b/t-partition-0",
        "persistent://a/b/t-partition-2147483647",
        "persistent://a/b/t-partition-2147483648",
        "persistent://a/b/t-partition-01",
        "persistent://a/b/t-partition-1-partition-2",
        "persistent://a/b/-partition-2",
        "persistent://a/b/t-partition-²",
        "persistent://a/c/b/t-partition-2",
        "topic://a/b/t-partition-2",
        "segment://a/b/t/0000-7fff-4",
    ],
)
def test_short_ways_to_what_a_name_says(name: str):
    """The topic and the place in the order are those that a whole name has."""
    topic = TopicName.parse(name)
    key, number = sort_key(name)
    assert (*key, number) == topic.sort_key()
    assert topic_of(name) == topic.base.full_name
    assert topic.full_name == name


@pytest.mark.parametrize("name", ["persistent://a-partition-1", "a//"])
def test_what_is_no_name_has_no_place(name: str):
    """The error names all of the text."""
    for read in (sort_key, topic_of):
        with pytest.raises(OptionError, match=f"'{name}' is not a topic name"):
            read(name)


def test_full_names_are_kept_once():
    """However often a plan asks for them."""
    topic = TopicName.parse("persistent://public/default/kept")
    (name,) = topic.partition_names([7])
    (again,) = topic.partition_names([7])
    assert name is again is topic.partition(7).full_name
