# SPDX-License-Identifier: Apache-2.0
"""What masters and brokers say in text: brokers, topics, and failures of partitions.

::

    brokerInfos, brokerConfigList   1:10.0.0.7:8123, default port '1:10.0.0.7: '
    topicInfos                      demo#1:numPartitions:numStores,2:...#maxSize
    topicMetaInfoList               demo#1:numStores:numPartitions:status,2:...
    partitionInfo                   1:10.0.0.7:8123#demo:10000
    failureInfo                     411:1:10.0.0.7:8123#demo:10000

The two numbers of a topic are the other way round in its two forms. A partition's id is
``store * 10000 + index``, and ids are the same on every broker.

Source: InLong 2.4, what a master and a broker were seen to send.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from spark_topics.errors import foreign_text
from tubemq_spark.errors import ProtocolError

#: Ids of two stores differ by this much at least.
STORE_STEP = 10_000

#: Of what a master says, the most that is believed: partitions of a topic and of all
#: topics that it was asked about, topics, and brokers.
_MAX_OF_TOPIC, _MAX_PARTITIONS = 100_000, 1_000_000
_MAX_TOPICS = _MAX_BROKERS = 10_000

#: Ports of a broker whose port a master leaves blank.
_BROKER_PORT, _BROKER_TLS_PORT = 8123, 8124

_MAX_INT = 2**31 - 1
_MAX_PORT = 65535
_HOST = re.compile(r"\[[0-9A-Fa-f:.%\w]{2,64}\]|[-.\w]{1,255}", re.ASCII)

_SUBSCRIBABLE = 1


class Broker(NamedTuple):
    """Where a broker is.

    Attributes:
        id: Its number in the cluster.
        address: ``host:port``.
    """

    id: int
    address: str


class Partition(NamedTuple):
    """A partition of a topic on a broker. They have an order.

    Attributes:
        topic: Name of the topic.
        broker_id: Number of the broker.
        partition_id: ``store * 10000 + index``.
    """

    topic: str
    broker_id: int
    partition_id: int

    @property
    def store(self) -> Store:
        """Return the store whose index the offsets count."""
        return Store(self.topic, self.broker_id, self.partition_id // STORE_STEP)

    def __str__(self) -> str:
        return f"{self.topic}/{self.broker_id}:{self.partition_id}"


class Store(NamedTuple):
    """A topic's log on a broker; the partitions of a store share an index.

    Attributes:
        topic: Name of the topic.
        broker_id: Number of the broker.
        number: Of the store, from 0.
    """

    topic: str
    broker_id: int
    number: int


class TopicMetadata(NamedTuple):
    """What a master says of a topic.

    Attributes:
        partitions: All that are open, in order.
        max_message_bytes: Largest message, None if it is not said.
        closed: Those that are not open, as far as that is said: their broker is down
            or starts, or lets no one in.
    """

    partitions: tuple[Partition, ...]
    max_message_bytes: int | None = None
    closed: tuple[Partition, ...] = ()


class PartitionFailure(NamedTuple):
    """A heartbeat's word on a partition.

    Attributes:
        code: As of other replies, 411 or 412.
        topic: Name of the topic.
        partition_id: Of the partition.
    """

    code: int
    topic: str
    partition_id: int


def decode_brokers(infos: Sequence[str], *, tls: bool) -> dict[int, str]:
    """Read brokerInfos or brokerConfigList: addresses by broker id.

    Args:
        infos: As the master sent them.
        tls: Whether the master was asked over TLS: it then tells the ports for TLS. A
            blank port is the default of these, else that of the ports without TLS.

    Raises:
        ProtocolError: One does not have this form, or they are more than there can be.
    """
    _check_count(infos, _MAX_BROKERS, "brokers")
    brokers = {}
    for info in infos:
        id_, _, address = info.partition(":")
        host, _, port = address.rpartition(":")
        if port.isspace():  # a space, as masters send it
            port = str(_BROKER_TLS_PORT if tls else _BROKER_PORT)
        if _HOST.fullmatch(host) is None or not 0 < _number(port, info) <= _MAX_PORT:
            raise _unreadable(info)
        broker_id = _number(id_, info)
        if broker_id > _MAX_INT:
            raise _unreadable(info)
        brokers[broker_id] = f"{host}:{port}"
    return brokers


def decode_topic_infos(infos: Sequence[str]) -> dict[str, TopicMetadata]:
    """Read topicInfos of a producer's heartbeat.

    Raises:
        ProtocolError: One does not have this form, or there are too many partitions.
    """
    _check_count(infos, _MAX_TOPICS, "topics")
    topics, believed = {}, _Believed()
    for info in infos:
        topic, *parts = info.split("#", 3)
        if not topic or not parts:
            raise _unreadable(info)
        named: set[Partition] = set()
        for broker_id, partitions, stores in _layouts(parts[0], 3, info):
            believed.add(named, topic, broker_id, stores=stores, partitions=partitions)
        size = parts[1].strip() if len(parts) > 1 else ""
        limit = _number(size, info) if size else None
        topics[topic] = TopicMetadata(tuple(sorted(named)), limit)
    return topics


def decode_topic_meta_infos(
    infos: Sequence[str], most: int = _MAX_PARTITIONS
) -> dict[str, TopicMetadata]:
    """Read topicMetaInfoList of a consumer: partitions, open for reading or not.

    Args:
        infos: The texts of the list.
        most: How many partitions of all topics are believed.

    Raises:
        ProtocolError: One does not have this form, or there are too many partitions.
    """
    _check_count(infos, _MAX_TOPICS, "topics")
    topics, believed = {}, _Believed(most)
    for info in infos:
        topic, _, layouts = info.partition("#")
        if not topic:
            raise _unreadable(info)
        named: set[Partition] = set()
        closed: set[Partition] = set()
        for broker_id, stores, partitions, status in _layouts(layouts, 4, info):
            believed.add(
                named if status == _SUBSCRIBABLE else closed,
                topic,
                broker_id,
                stores=stores,
                partitions=partitions,
            )
        topics[topic] = TopicMetadata(
            tuple(sorted(named)), closed=tuple(sorted(closed))
        )
    return topics


def encode_partition_info(broker: Broker, partition: Partition) -> str:
    """Return a partitionInfo of a broker's heartbeat."""
    return f"{broker.id}:{broker.address}#{partition.topic}:{partition.partition_id}"


def decode_failure(info: str) -> PartitionFailure:
    """Read a failureInfo of a broker's heartbeat.

    Raises:
        ProtocolError: It does not have this form.
    """
    code, _, rest = info.partition(":")
    topic, _, partition_id = rest.rpartition("#")[2].rpartition(":")
    if not topic:
        raise _unreadable(info)
    return PartitionFailure(_number(code, info), topic, _number(partition_id, info))


class _Believed:
    """Makes partitions of what a master says, as many as are believed."""

    def __init__(self, most: int = _MAX_PARTITIONS) -> None:
        self._most = self._left = most

    def add(
        self,
        found: set[Partition],
        topic: str,
        broker_id: int,
        *,
        stores: int,
        partitions: int,
    ) -> None:
        """Add a topic's partitions on a broker, an equal number per store."""
        count = stores * partitions
        self._left -= count
        if (
            partitions > STORE_STEP
            or len(found) + count > _MAX_OF_TOPIC
            or self._left < 0
        ):
            raise ProtocolError(
                f"A master says that the topic {foreign_text(topic)} has {stores} "
                f"stores of {partitions} partitions on broker {broker_id}: "
                f"{_MAX_OF_TOPIC} partitions of a topic, and {self._most} in all "
                "are believed."
            )
        if count:
            found.update(
                Partition(topic, broker_id, store * STORE_STEP + index)
                for store in range(stores)
                for index in range(partitions)
            )


def _layouts(text: str, count: int, info: str) -> Iterable[list[int]]:
    """Yield the numbers of each broker's part of a topic."""
    for layout in filter(None, text.split(",", _MAX_BROKERS)):
        numbers = [_number(number, info) for number in layout.split(":", count)]
        if len(numbers) != count or numbers[0] > _MAX_INT:
            raise _unreadable(info)
        yield numbers


def _check_count(infos: Sequence[str], limit: int, what: str) -> None:
    if len(infos) > limit:
        raise ProtocolError(
            f"A master lists {len(infos)} {what}, of which {limit} are believed."
        )


def _number(text: str, info: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise _unreadable(info)
    return int(text)


def _unreadable(info: str) -> ProtocolError:
    return ProtocolError(
        f"A server sent '{foreign_text(info)}', which is not what it should be."
    )
