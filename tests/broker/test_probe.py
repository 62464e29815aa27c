# SPDX-License-Identifier: Apache-2.0
"""Whether an entry is stored is told by the ledgers, whatever becomes of the topic."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pulsar_spark.client.pool import ConnectionPool
from pulsar_spark.client.probe import is_stored
from pulsar_spark.errors import TopicNotFoundError
from pulsar_spark.message_id import MessageId
from tests.bench.publish import client_options
from tests.support import official
from tests.support.waiting import trim_first_ledger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pulsar_spark.testing.admin import Admin


@pytest.fixture
def stored(service_url: str) -> Iterator[Callable[[str, MessageId], bool | None]]:
    """Asks the broker."""
    with ConnectionPool(client_options(service_url)) as pool:
        yield lambda topic, entry: is_stored(pool, topic, entry)


def filled(service_url: str, topic: str) -> list[MessageId]:
    """Ten entries more; where all of them are."""
    official.produce(service_url, topic, [b"v"] * 10, batch=0)
    rows = official.read_back(service_url, topic)
    return [MessageId(*row.message_id[:2]) for row in rows]


def test_what_was_written_is_stored(
    service_url: str,
    admin: Admin,
    topic: str,
    stored: Callable[[str, MessageId], bool | None],
) -> None:
    """Also in ledgers that a move has closed; not what would come next."""
    for _ in range(2):
        entries = filled(service_url, topic)
        admin.unload(topic)
    assert len({entry.ledger_id for entry in entries}) == 2
    assert [stored(topic, entry) for entry in entries] == [True] * 20
    last = entries[-1]
    assert stored(topic, MessageId(last.ledger_id, last.entry_id + 1)) is False


def test_what_retention_took_is_not(
    service_url: str,
    admin: Admin,
    namespace: str,
    stored: Callable[[str, MessageId], bool | None],
) -> None:
    """Neither its first entry nor its last; what follows it is."""
    topic = f"persistent://{namespace}/trimmed"
    filled(service_url, topic)
    admin.unload(topic)
    entries = filled(service_url, topic)
    trim_first_ledger(admin, topic)
    assert [stored(topic, entry) for entry in entries[:10]] == [False] * 10
    assert [stored(topic, entry) for entry in entries[10:]] == [True] * 10


def test_what_another_topic_of_that_name_had_is_not(
    service_url: str,
    admin: Admin,
    topic: str,
    stored: Callable[[str, MessageId], bool | None],
) -> None:
    """Whether there is none now, or one with entries, or one without."""
    entries = filled(service_url, topic)
    admin.delete(topic)
    with pytest.raises(TopicNotFoundError):
        stored(topic, entries[-1])
    admin.create_topic(topic)
    assert stored(topic, entries[-1]) is False
    official.produce(service_url, topic, [b"v"] * 20, batch=0)
    assert [stored(topic, entry) for entry in entries] == [False] * 10
