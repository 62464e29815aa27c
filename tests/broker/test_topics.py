# SPDX-License-Identifier: Apache-2.0
"""Which topics a read is about: names in all forms, partitions, patterns."""

from __future__ import annotations

import re
import threading
from typing import TYPE_CHECKING

import pytest

from pulsar_spark import OptionError, TopicNotFoundError
from pulsar_spark.client.lookup import TopicLookup
from pulsar_spark.client.pool import ConnectionPool
from pulsar_spark.options import parse_read_options
from pulsar_spark.source.plan.discovery import find_topic_partitions
from pulsar_spark.topics import compile_topics_pattern
from pulsar_spark.wire import commands
from tests.support import official, reading
from tests.support.entries import message
from tests.support.raw_publisher import RawPublisher

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pulsar_spark.testing.admin import Admin


@pytest.fixture(scope="module")
def mixed(admin: Admin, service_url: str) -> Iterator[str]:
    """A namespace with two plain topics and a partitioned one, each with rows."""
    namespace = "public/test-mixed-topics"
    admin.create_namespace(namespace, keep=True)
    base = f"persistent://{namespace}"
    admin.create_partitioned(f"{base}/events", 3)
    for name in ("events-old", "other"):
        official.produce(service_url, f"{base}/{name}", [name.encode()])
    for index in range(3):
        name = f"events-partition-{index}"
        official.produce(service_url, f"{base}/{name}", [name.encode()])
    yield namespace
    admin.delete(f"{base}/events", partitioned=True)
    for topic in admin.topics(namespace):
        admin.delete(topic)
    admin.delete_namespace(namespace)


EVENTS = ["events-partition-0", "events-partition-1", "events-partition-2"]


def names_read(service_url: str, namespace: str, **options: str) -> list[str]:
    """Local names of the topics that rows came from; each row says which it is of."""
    rows = reading.read(service_url, options)
    for row in rows:
        assert row.value is not None
        assert row.topic == f"persistent://{namespace}/{row.value.decode()}"
    return [row.topic.rpartition("/")[2] for row in rows]


@pytest.mark.parametrize("form", ["persistent://{}/{}", "{}/{}"])
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("other", ["other"]),
        ("events", EVENTS),
        ("events-partition-1", ["events-partition-1"]),
    ],
)
def test_topic(
    service_url: str, mixed: str, form: str, name: str, expected: list[str]
) -> None:
    """``topic`` is a whole topic or one partition, in each form of its name."""
    options = {"topic": form.format(mixed, name)}
    assert names_read(service_url, mixed, **options) == expected


def test_short_name(service_url: str, admin: Admin) -> None:
    """A bare name is of ``public/default``; the column holds the full name."""
    official.produce(service_url, "short-name", [b"v"])
    try:
        (row,) = reading.read(service_url, {"topic": "short-name"})
        assert row.topic == "persistent://public/default/short-name"
        offsets = '{"short-name": "%s"}' % row.position  # noqa: UP031 - braces
        for name in ("public/default/short-name", row.topic):
            options = {"topic": name, "startingOffsets": offsets}
            assert reading.read(service_url, options) == [row]
    finally:
        admin.delete("persistent://public/default/short-name")


@pytest.mark.parametrize(
    ("topics", "expected"),
    [
        (["other", "events-old"], ["events-old", "other"]),
        (["events", "events-partition-1"], EVENTS),
        (["events-partition-1", "events", "events"], EVENTS),
        (["events-partition-2", "other"], ["events-partition-2", "other"]),
        (["events-partition-2", "events-partition-0"], [EVENTS[0], EVENTS[2]]),
    ],
)
def test_topics(
    service_url: str, mixed: str, topics: list[str], expected: list[str]
) -> None:
    """``topics`` mixes whole topics and partitions; what comes twice is read once."""
    forms = ("persistent://{}/{}", "{}/{}")
    names = [forms[i % 2].format(mixed, name) for i, name in enumerate(topics)]
    options = {"topics": " , ".join(names)}
    assert names_read(service_url, mixed, **options) == expected


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("events.*", [*EVENTS, "events-old"]),
        ("events", EVENTS),
        ("events|other", [*EVENTS, "other"]),
        ("ev", None),
        (".*-partition-1", None),
        (".*", [*EVENTS, "events-old", "other"]),
    ],
)
@pytest.mark.parametrize("scheme", ["", "persistent://"])
def test_pattern(
    service_url: str,
    mixed: str,
    scheme: str,
    pattern: str,
    expected: list[str] | None,
) -> None:
    """A pattern matches whole names of plain and partitioned topics, no suffixes."""
    options = {"topicsPattern": f"{scheme}{mixed}/{pattern}"}
    if expected is None:
        with pytest.raises(TopicNotFoundError, match="topicsPattern"):
            names_read(service_url, mixed, **options)
    else:
        assert names_read(service_url, mixed, **options) == expected


def test_odd_neighbours(service_url: str, admin: Admin, namespace: str) -> None:
    """A partition without its topic, and a topic beside its partitions, harm no one.

    Some producers write to the name of a partitioned topic itself. The broker lets
    them, and no consumer of the topic ever sees those rows.
    """
    base = f"persistent://{namespace}"
    admin.create_partitioned(f"{base}/parted", 2)
    for name in ("parted-partition-1", "plain", "orphan-partition-5"):
        official.produce(service_url, f"{base}/{name}", [name.encode()])
    with RawPublisher(service_url, f"{base}/parted") as publisher:
        publisher.send(*message(b"unseen"))
    expected = ["orphan-partition-5", "parted-partition-1", "plain"]
    for options in (
        {"topicsPattern": f"{namespace}/.*"},
        {"topics": ",".join(f"{namespace}/{n}" for n in (*expected, "parted"))},
    ):
        assert names_read(service_url, namespace, **options) == expected


def test_system_topics_are_invisible(
    service_url: str, admin: Admin, namespace: str
) -> None:
    """What the broker keeps for itself matches no pattern."""
    topic = f"persistent://{namespace}/mine"
    official.produce(service_url, topic, [b"mine"])
    hidden = f"persistent://{namespace}/__change_events"
    official.produce(service_url, hidden, [b"hidden"])
    assert hidden in admin.topics(namespace, system=True)
    options = {"topicsPattern": f"{namespace}/.*"}
    assert names_read(service_url, namespace, **options) == ["mine"]


@pytest.mark.parametrize(
    "name",
    ["missing", "events-partition-3", "other-partition-0", "missing-partition-0"],
)
def test_missing(service_url: str, mixed: str, name: str) -> None:
    """What does not exist is one error that names it and the ways out."""
    topics = f"{mixed}/other,{mixed}/{name}"
    with pytest.raises(TopicNotFoundError) as raised:
        reading.plan(service_url, {"topics": topics})
    assert f"persistent://{mixed}/{name}" in str(raised.value)
    assert "waitingForNonExistedTopic" in str(raised.value)


def test_missing_namespace(service_url: str) -> None:
    """A namespace that does not exist has no such topic, and no match."""
    for options in ({"topic": "public/no-ns/t"}, {"topicsPattern": "public/no-ns/.*"}):
        with pytest.raises(TopicNotFoundError, match="public/no-ns"):
            reading.plan(service_url, options)


@pytest.mark.parametrize("way", ["topic", "topicsPattern"])
def test_waiting(service_url: str, namespace: str, way: str) -> None:
    """A topic that is created while the read waits is read."""
    options = {
        "service.url": service_url,
        way: f"{namespace}/late",
        "waitingForNonExistedTopic": "true",
        "pulsar.client.maxBackoffIntervalNanos": "200000000",
    }
    asked = threading.Event()

    class Watched(TopicLookup):
        """Tells when the first answer, that there is no such topic, has come."""

        def topics(self, names):  # type: ignore[no-untyped-def]
            counts = super().topics(names)
            asked.set()
            return counts

        def topics_of_namespace(self, namespace, pattern=""):  # type: ignore[no-untyped-def]
            names = super().topics_of_namespace(namespace, pattern)
            asked.set()
            return names

    found: list[str] = []
    pool = ConnectionPool(parse_read_options(options).client)

    def wait_for_it() -> None:
        topics = find_topic_partitions(Watched(pool), parse_read_options(options))
        found.extend(str(topic) for topic in topics)

    waiting = threading.Thread(target=wait_for_it)
    waiting.start()
    try:
        assert asked.wait(60)
        official.produce(service_url, f"persistent://{namespace}/late", [b"late"])
        waiting.join(60)
    finally:
        pool.close()
    assert found == [f"persistent://{namespace}/late"]
    del options["service.url"]
    assert names_read(service_url, namespace, **options) == ["late"]


def test_waiting_ends(service_url: str, namespace: str) -> None:
    """A topic that never comes is the same error, after the time allowed."""
    options = {
        "topic": f"{namespace}/never",
        "waitingForNonExistedTopic": "true",
        "topicWaitTimeoutMs": "300",
    }
    with pytest.raises(TopicNotFoundError, match=re.escape(f"{namespace}/never")):
        reading.plan(service_url, options)


def test_not_persistent(service_url: str) -> None:
    """A non-persistent topic keeps nothing, so naming one is refused."""
    with pytest.raises(OptionError, match="non-persistent"):
        reading.plan(service_url, {"topic": "non-persistent://public/default/t"})


def test_brokers_shorten_the_list(
    service_url: str, admin: Admin, namespace: str
) -> None:
    """Topics that do not match are not sent, and a list that is known is not either."""
    for number in range(5):
        admin.create_topic(f"persistent://{namespace}/other-{number}")
    admin.create_topic(f"persistent://{namespace}/mine-1")
    admin.create_partitioned(f"persistent://{namespace}/mine-2", 3)
    pattern = compile_topics_pattern(f"{namespace}/mine-[0-9]").for_brokers
    mine = {
        f"persistent://{namespace}/{name}"
        for name in ("mine-1", *(f"mine-2-partition-{n}" for n in range(3)))
    }
    options = parse_read_options({"service.url": service_url, "topic": "t"}).client
    with ConnectionPool(options) as pool:
        lookup = TopicLookup(pool)
        first = lookup.topics_of_namespace(namespace, pattern)
        assert set(first) == mine
        (known,) = lookup._lists.values()
        request = commands.topics_of_namespace(namespace, pattern, known.hash)
        answer = pool.service().ask(request, 30)
        assert answer.filtered
        assert (answer.changed, list(answer.topics)) == (False, [])
        assert lookup.topics_of_namespace(namespace, pattern) == first
        admin.create_topic(f"persistent://{namespace}/mine-3")
        later = lookup.topics_of_namespace(namespace, pattern)
        assert set(later) == {*mine, f"persistent://{namespace}/mine-3"}
