# SPDX-License-Identifier: Apache-2.0
"""Commands: a builder for each command of the client, a decoder for all.

A command that is answered is a `Request`, which knows its name and the type of its
reply; for any other the builder returns the frame, ready for the socket. SEND, which
carries an entry, is built by ``wire.outgoing``. Arguments have the protocol's names;
ids are the caller's to choose (``consumer_id`` and ``producer_id`` are unique for one
connection). What would make the broker cut the connection, or create a topic by
reading, cannot be expressed.

Source: PulsarApi.proto, in our words in proto/pulsar_api.proto.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from pulsar_spark.errors import ProtocolError
from pulsar_spark.loops.requests import numbers, request_frame
from pulsar_spark.message_id import MessageId, TopicPositions, TxnId
from pulsar_spark.wire import pulsar_api_pb2 as pb
from pulsar_spark.wire.frames import encode_frame
from spark_topics.protobuf import UNREADABLE, holds_text, undecodable_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from google.protobuf.message import Message

#: The answer to a request; most often the command's own message.
ReplyT = TypeVar("ReplyT", bound="Message | TopicPositions")

#: What we speak. The broker answers with the lower one of both sides, and features are
#: decided by that number. 21 is 4.0's.
PROTOCOL_VERSION = 21

#: What AUTH_CHALLENGE carries when only a fresh credential is wanted.
AUTH_REFRESH_CHALLENGE = b"PulsarAuthRefresh"

_2_TO_64 = 1 << 64
_U64_MAX = _2_TO_64 - 1
_SIGN_BIT = 1 << 63
#: The most that one FLOW grants: to a broker more is a negative number; it hangs up.
_MAX_FLOW_PERMITS = (1 << 31) - 1
_WORD_BITS = 64
_MIN_TXN_TTL_MS = 100

#: Tags of the first fields of commands that a plan has many of: two numbers, and a
#: message. To have protobuf write these would take most of the plan's time.
_FIRST, _SECOND, _THIRD = 0x08, 0x10, 0x1A


class SubType(IntEnum):
    """How consumers share a subscription (CommandSubscribe.SubType)."""

    EXCLUSIVE = 0
    SHARED = 1
    FAILOVER = 2
    KEY_SHARED = 3


class InitialPosition(IntEnum):
    """Where a new subscription starts (CommandSubscribe.InitialPosition)."""

    LATEST = 0
    EARLIEST = 1


class ProducerAccessMode(IntEnum):
    """How producers share a topic (CommandProducer.ProducerAccessMode)."""

    SHARED = 0
    EXCLUSIVE = 1
    WAIT_FOR_EXCLUSIVE = 2
    EXCLUSIVE_WITH_FENCING = 3


class TxnAction(IntEnum):
    """How a transaction ends (TxnAction)."""

    COMMIT = 0
    ABORT = 1


def to_unsigned(value: int) -> int:
    """Return a signed 64-bit number as the wire's uint64: -1 becomes 2^64-1."""
    return value & _U64_MAX


def to_signed(value: int) -> int:
    """Return the wire's uint64 as a signed 64-bit number: 2^64-1 becomes -1."""
    return value - _2_TO_64 if value & _SIGN_BIT else value


# -- message ids -----------------------------------------------------------------------


def to_message_id_data(message_id: MessageId) -> pb.MessageIdData:
    """Return a MessageId in protobuf; the defaults -1 and 0 are left unset."""
    data = pb.MessageIdData(
        ledgerId=to_unsigned(message_id.ledger_id),
        entryId=to_unsigned(message_id.entry_id),
    )
    if message_id.partition >= 0:
        data.partition = message_id.partition
    if message_id.batch_index >= 0:
        data.batch_index = message_id.batch_index
    if message_id.batch_size > 0:
        data.batch_size = message_id.batch_size
    if message_id.first_chunk is not None:
        data.first_chunk_message_id.CopyFrom(to_message_id_data(message_id.first_chunk))
    return data


def from_message_id_data(data: pb.MessageIdData) -> MessageId:
    """Convert a MessageIdData to a MessageId; that of an empty topic becomes -1:-1.

    Drop its ack_set, which a MessageId does not have.
    """
    first_chunk = None
    if data.HasField("first_chunk_message_id"):
        # Ids do not nest deeper than this; a stream that says otherwise gains nothing.
        first = data.first_chunk_message_id
        first_chunk = MessageId(
            to_signed(first.ledgerId),
            to_signed(first.entryId),
            partition=first.partition,
        )
    return MessageId(
        to_signed(data.ledgerId),
        to_signed(data.entryId),
        batch_index=data.batch_index,
        partition=data.partition,
        batch_size=data.batch_size,
        first_chunk=first_chunk,
    )


def read_positions(reply: pb.CommandGetLastMessageIdResponse) -> TopicPositions:
    """Return the positions of a consumer and its topic partition."""
    last = from_message_id_data(reply.last_message_id)
    before = from_message_id_data(reply.consumer_mark_delete_position)
    # An empty or fully trimmed topic answers -1:-1; a ledger that holds nothing that
    # can be delivered answers with its entry -1.
    return TopicPositions(before, last if last.entry_id >= 0 else None)


def positions_of(
    before_ledger_id: int,
    before_entry_id: int,
    ledger_id: int,
    entry_id: int,
    partition: int,
    batch_index: int,
    batch_size: int,
) -> TopicPositions:
    """Return positions as ``read_positions`` does, of the numbers in the reply."""
    last = None
    if entry_id >= 0:
        last = MessageId(ledger_id, entry_id, batch_index, partition, batch_size)
    return TopicPositions(MessageId(before_ledger_id, before_entry_id), last)


def ack_set_words(batch_index: int, batch_size: int) -> list[int]:
    """Return the ack_set that acknowledges the first messages of a batch.

    Bit i, least significant first, 64 to a word, says that message i is *not* yet
    acknowledged::

        ack_set_words(0, 3)  ->  [0b110]     message 0 is done, 1 and 2 are not
        ack_set_words(2, 3)  ->  []          all done: the field must be absent

    An all-zero word would be taken for "nothing acknowledged", and bits behind the
    batch's end would come back and spoil the broker's permit balance; neither is built.

    Args:
        batch_index: Last acknowledged message; -1 for none of them.
        batch_size: Number of messages in the entry.

    Returns:
        Signed 64-bit words, as proto's int64 wants them. Empty: the whole entry.

    Raises:
        ValueError: batch_index is outside of -1 .. batch_size - 1.
    """
    if not -1 <= batch_index < batch_size:
        raise ValueError(f"batch_index {batch_index} is not in a batch of {batch_size}")
    done = batch_index + 1
    if done == batch_size:
        return []
    pending = ((1 << batch_size) - 1) ^ ((1 << done) - 1)
    return [
        to_signed((pending >> shift) & _U64_MAX)
        for shift in range(0, batch_size, _WORD_BITS)
    ]


def _position(message_id: MessageId) -> pb.MessageIdData:
    """Return the start of a reader that has to get the whole of a message."""
    if message_id.first_chunk is not None:
        # The last chunk alone is of no use, nor has a chunk any index.
        return to_message_id_data(message_id.first_chunk)
    return to_message_id_data(message_id)


def _bare_position(message_id: MessageId, ack_set: Sequence[int]) -> pb.MessageIdData:
    return pb.MessageIdData(
        ledgerId=to_unsigned(message_id.ledger_id),
        entryId=to_unsigned(message_id.entry_id),
        ack_set=ack_set,
    )


# -- requests --------------------------------------------------------------------------


class Attached(NamedTuple):
    """A producer or a consumer of a connection.

    Attributes:
        is_producer: Which of these.
        number: Its id.
    """

    is_producer: bool
    number: int


class Request(Generic[ReplyT]):
    """A command that the broker answers.

    Args:
        command_type: The number of the type of the command.
        body: The command's own message, still without a number of the request; or the
            bytes of that message.
        reply_type: The type of the answer, unless the broker refuses.
        consumer_id: The consumer that has to stay for an answer to come, None for none.
            A broker (4.0.7) that closes the consumer first says nothing to the request.

    Attributes:
        command_type, reply_type, consumer_id: The same.
    """

    __slots__ = ("_body", "command_type", "consumer_id", "reply_type")

    def __init__(
        self,
        command_type: int,
        body: Message | bytes,
        reply_type: type[ReplyT],
        consumer_id: int | None = None,
    ) -> None:
        self.command_type = command_type
        self.reply_type = reply_type
        self.consumer_id = consumer_id
        self._body = body if isinstance(body, bytes) else body.SerializeToString()

    @property
    def name(self) -> str:
        """Return the protocol's name of the request, such as ``LOOKUP``."""
        return command_name(self.command_type).removesuffix("_REQUEST")

    @property
    def command(self) -> pb.BaseCommand:
        """Return the command, still without a number of the request."""
        command = pb.BaseCommand(type=self.command_type)
        getattr(command, _BODY_FIELDS[self.command_type]).MergeFromString(self._body)
        return command

    @property
    def subject(self) -> str:
        """Return the topic or namespace of the request, "" for none."""
        body = getattr(self.command, _BODY_FIELDS[self.command_type])
        subject: str = getattr(body, "topic", "") or getattr(body, "namespace", "")
        return subject

    @property
    def attaches(self) -> Attached | None:
        """Return the consumer or producer that the request attaches, None for none."""
        if self.command_type == pb.BaseCommand.PRODUCER:
            return Attached(True, self.command.producer.producer_id)
        if self.command_type == pb.BaseCommand.SUBSCRIBE:
            return Attached(False, self.command.subscribe.consumer_id)
        return None

    def encode(self, request_id: int) -> bytes:
        """Return the frame.

        Args:
            request_id: Comes back in the reply; unique on the connection.
        """
        tag = _number_tag(self.command_type)
        return request_frame(self.command_type, self._body, tag, request_id)


#: Fields that link a reply to its request, most particular first.
_NUMBER_FIELDS = ("session_id", "watch_id", "request_id")


def number_field(body: Any) -> str:
    """Return the field that links a reply to its request.

    Args:
        body: Of the command of either.
    """
    return _number_field(body.DESCRIPTOR)


@functools.cache
def _number_field(descriptor: Any) -> str:
    fields = descriptor.fields_by_name
    return next(name for name in _NUMBER_FIELDS if name in fields)


@functools.cache
def _number_tag(command_type: int) -> int:
    """Return the tag of the field that links a request of a type to its reply."""
    body: Any = pb.BaseCommand.DESCRIPTOR.fields_by_number[command_type].message_type
    number: int = body.fields_by_name[_number_field(body)].number
    return number << 3


# -- connection ------------------------------------------------------------------------


def connect(
    client_version: str,
    *,
    auth_method_name: str = "none",
    auth_data: bytes | None = None,
    proxy_to_broker_url: str = "",
) -> bytes:
    """Build CONNECT, the first frame on a connection.

    Args:
        client_version: Free text for the broker's statistics, ``pulsar-spark-1.0``.
        auth_method_name: ``none``, ``token``, ``basic`` or ``tls``.
        auth_data: The credential, None if the method has none.
        proxy_to_broker_url: ``host:port`` of the broker a proxy shall connect to,
            without a scheme; "" for a direct connection.
    """
    body = pb.CommandConnect(
        client_version=client_version,
        auth_method_name=auth_method_name,
        auth_data=auth_data,
        protocol_version=PROTOCOL_VERSION,
        proxy_to_broker_url=proxy_to_broker_url or None,
        feature_flags=pb.FeatureFlags(
            supports_auth_refresh=True,
            supports_broker_entry_metadata=True,
            supports_get_partitioned_metadata_without_auto_creation=True,
        ),
    )
    return _encode(pb.BaseCommand(type=pb.BaseCommand.CONNECT, connect=body))


def auth_response(
    client_version: str, *, auth_method_name: str, auth_data: bytes
) -> bytes:
    """Build AUTH_RESPONSE, the answer to AUTH_CHALLENGE. Success has no reply."""
    body = pb.CommandAuthResponse(
        client_version=client_version,
        protocol_version=PROTOCOL_VERSION,
        response=pb.AuthData(auth_method_name=auth_method_name, auth_data=auth_data),
    )
    return _encode(pb.BaseCommand(type=pb.BaseCommand.AUTH_RESPONSE, authResponse=body))


def ping() -> bytes:
    """Build PING."""
    return _encode(pb.BaseCommand(type=pb.BaseCommand.PING, ping=pb.CommandPing()))


def pong() -> bytes:
    """Build PONG, the answer to PING."""
    return _encode(pb.BaseCommand(type=pb.BaseCommand.PONG, pong=pb.CommandPong()))


# -- finding topics --------------------------------------------------------------------


def lookup(
    topic: str,
    *,
    authoritative: bool = False,
    advertised_listener_name: str = "",
) -> Request[pb.CommandLookupTopicResponse]:
    """Build LOOKUP: which broker serves this topic?

    Args:
        topic: Full name of a topic partition.
        authoritative: What the Redirect said that is being followed.
        advertised_listener_name: Which of a cluster's listeners to name, "" for any.
    """
    body = pb.CommandLookupTopic(
        topic=topic,
        authoritative=authoritative,
        advertised_listener_name=advertised_listener_name or None,
    )
    return Request(pb.BaseCommand.LOOKUP, body, pb.CommandLookupTopicResponse)


def partitioned_metadata(
    topic: str, *, auto_creation: bool = False
) -> Request[pb.CommandPartitionedTopicMetadataResponse]:
    """Build PARTITIONED_METADATA: how many partitions?

    Args:
        topic: Full name, without the suffix of a partition.
        auto_creation: Whether to create the topic where the broker's policy makes such
            topics partitioned; others come into being with their first producer.
    """
    body = pb.CommandPartitionedTopicMetadata(
        topic=topic, metadata_auto_creation_enabled=auto_creation
    )
    return Request(
        pb.BaseCommand.PARTITIONED_METADATA,
        body,
        pb.CommandPartitionedTopicMetadataResponse,
    )


def scalable_topic_lookup(topic: str) -> Request[pb.CommandScalableTopicUpdate]:
    """Build SCALABLE_TOPIC_LOOKUP: which segments does a topic have (Pulsar 5)?

    The broker goes on to report changes until ``scalable_topic_close``. It creates
    nothing.

    Args:
        topic: Full name, without the suffix of a partition.
    """
    return Request(
        pb.BaseCommand.SCALABLE_TOPIC_LOOKUP,
        pb.CommandScalableTopicLookup(topic=topic, create_if_missing=False),
        pb.CommandScalableTopicUpdate,
    )


def scalable_topic_close(session_id: int) -> bytes:
    """Build SCALABLE_TOPIC_CLOSE, which has no reply.

    Args:
        session_id: Of the reply to ``scalable_topic_lookup``.
    """
    return _encode(
        pb.BaseCommand(
            type=pb.BaseCommand.SCALABLE_TOPIC_CLOSE,
            scalable_topic_close=pb.CommandScalableTopicClose(session_id=session_id),
        )
    )


def scalable_topic_subscribe(
    topic: str, subscription: str, consumer_id: int, consumer_name: str
) -> Request[pb.CommandScalableTopicSubscribeResponse]:
    """Build SCALABLE_TOPIC_SUBSCRIBE, for a consumer of the type STREAM.

    The topic then keeps its segments until the subscription has read them.

    Args:
        topic: Full name of a scalable topic.
        subscription: Its name.
        consumer_id: Unique on the connection.
        consumer_name: By which the controller knows the consumer again.
    """
    return Request(
        pb.BaseCommand.SCALABLE_TOPIC_SUBSCRIBE,
        pb.CommandScalableTopicSubscribe(
            topic=topic,
            subscription=subscription,
            consumer_name=consumer_name,
            consumer_id=consumer_id,
            consumer_type=0,
        ),
        pb.CommandScalableTopicSubscribeResponse,
    )


def scalable_topic_unsubscribe(consumer_id: int) -> Request[pb.CommandSuccess]:
    """Build SCALABLE_TOPIC_UNSUBSCRIBE: the subscription ends (since 5.0.1).

    Args:
        consumer_id: As ``scalable_topic_subscribe`` had it, on the same connection.
    """
    return Request(
        pb.BaseCommand.SCALABLE_TOPIC_UNSUBSCRIBE,
        pb.CommandScalableTopicUnsubscribe(consumer_id=consumer_id),
        pb.CommandSuccess,
    )


def watch_scalable_topics(
    namespace: str,
) -> Request[pb.CommandWatchScalableTopicsUpdate]:
    """Build WATCH_SCALABLE_TOPICS: which scalable topics does a namespace have?

    The broker goes on to report changes until ``watch_scalable_topics_close``.

    Args:
        namespace: ``tenant/namespace``.
    """
    return Request(
        pb.BaseCommand.WATCH_SCALABLE_TOPICS,
        pb.CommandWatchScalableTopics(namespace=namespace),
        pb.CommandWatchScalableTopicsUpdate,
    )


def watch_scalable_topics_close(watch_id: int) -> bytes:
    """Build WATCH_SCALABLE_TOPICS_CLOSE, which has no reply.

    Args:
        watch_id: Of the reply to ``watch_scalable_topics``.
    """
    return _encode(
        pb.BaseCommand(
            type=pb.BaseCommand.WATCH_SCALABLE_TOPICS_CLOSE,
            watch_scalable_topics_close=pb.CommandWatchScalableTopicsClose(
                watch_id=watch_id
            ),
        )
    )


def topics_of_namespace(
    namespace: str, topics_pattern: str = "", topics_hash: str = ""
) -> Request[pb.CommandGetTopicsOfNamespaceResponse]:
    """Build GET_TOPICS_OF_NAMESPACE for persistent topics.

    Brokers before 2.11 pass over all but the namespace (PIP-145).

    Args:
        namespace: ``tenant/namespace``.
        topics_pattern: What names without scheme must match; "" for all of them.
        topics_hash: Of the list that is known: the same one is not sent again.
    """
    body = pb.CommandGetTopicsOfNamespace(
        namespace=namespace,
        mode=pb.CommandGetTopicsOfNamespace.PERSISTENT,
        topics_pattern=topics_pattern or None,
        topics_hash=topics_hash or None,
    )
    return Request(
        pb.BaseCommand.GET_TOPICS_OF_NAMESPACE,
        body,
        pb.CommandGetTopicsOfNamespaceResponse,
    )


# -- schemas ---------------------------------------------------------------------------


def schema(
    schema_type: int, data: bytes, properties: Mapping[str, str], name: str = ""
) -> pb.Schema:
    """Return a schema in the form of PRODUCER.

    Args:
        schema_type: Its number in the protocol.
        data: The definition.
        properties: Its own.
        name: The name; brokers do not keep it.

    Raises:
        ValueError: The type that is none: it would keep all others out of the topic.
    """
    if schema_type <= 0:
        raise ValueError(f"a schema of type {schema_type} cannot be registered")
    return pb.Schema(
        name=name,
        schema_data=data,
        type=schema_type,
        properties=[pb.KeyValue(key=k, value=v) for k, v in properties.items()],
    )


_VERSION_BYTES = 8


def get_schema(
    topic: str, version: bytes = b""
) -> Request[pb.CommandGetSchemaResponse]:
    """Build GET_SCHEMA: with what schema was this written, or is written now?

    Args:
        topic: Full name of a topic, or of a partition, which has its topic's schemas.
        version: As a message names it, 8 bytes; empty for the latest.

    Raises:
        ValueError: A version of another size, which would cost the connection.
    """
    if version and len(version) != _VERSION_BYTES:
        raise ValueError(f"no version of a schema has {len(version)} bytes")
    body = pb.CommandGetSchema(topic=topic, schema_version=version or None)
    return Request(pb.BaseCommand.GET_SCHEMA, body, pb.CommandGetSchemaResponse)


# -- consumer --------------------------------------------------------------------------


@dataclass(frozen=True)
class ConsumerSettings:
    """The fields of SUBSCRIBE that options of a read set, for every consumer of rows.

    Attributes:
        read_compacted: Whether to read only the last message of each key. EXCLUSIVE or
            FAILOVER only.
        properties: Of the consumer, for the broker's statistics.
    """

    read_compacted: bool = False
    properties: Iterable[tuple[str, str]] = ()


@dataclass(frozen=True)
class SubscribeRequest:
    """How to subscribe: all of SUBSCRIBE but the topic and the consumer's id.

    Attributes:
        subscription: Its name. The broker creates a missing subscription. The own
            subscription of a reader is not durable.
        durable: False for a cursor that vanishes with its consumer.
        start: First entry to deliver, as a whole, whatever its batch_index says; for a
            chunked message, its first chunk. None leaves it to initial_position.
        initial_position: Where a subscription begins that this request creates.
        consumer: The fields that options set.
        sub_type: How consumers share the subscription.
        consumer_name: For the broker's statistics, "" for a generated name.
        rollback_s: Start this many seconds before now. Moves a durable subscription,
            too, at each request.
        subscription_properties: Of a subscription that this request creates.
        replicate_subscription_state: Whether the cursor is replicated with the topic.

    Raises:
        ValueError: A start for a durable subscription, which a broker would ignore.
    """

    subscription: str
    durable: bool = False
    start: MessageId | None = None
    initial_position: InitialPosition = InitialPosition.LATEST
    consumer: ConsumerSettings = ConsumerSettings()
    sub_type: SubType = SubType.EXCLUSIVE
    consumer_name: str = ""
    rollback_s: int | None = None
    subscription_properties: Iterable[tuple[str, str]] = ()
    replicate_subscription_state: bool = False

    def __post_init__(self) -> None:
        if self.durable and self.start is not None:
            raise ValueError("a durable subscription ignores start: seek instead")


#: What consumers say of themselves that stand a migration of their topic to a scalable
#: one (Pulsar 5, PIP-475). Others keep an operator from it.
_SURVIVES_MIGRATION = ("__pulsar.v5.managed", "true")


def subscribe(
    topic: str,
    consumer_id: int,
    how: SubscribeRequest,
    *,
    survives_migration: bool = False,
) -> Request[pb.CommandSuccess]:
    """Build SUBSCRIBE. Never creates the topic.

    Args:
        topic: Full name of a topic partition.
        consumer_id: Of the new consumer, unique on the connection.
        how: The rest.
        survives_migration: Whether the reader goes on if the topic becomes a scalable
            one. For brokers that know scalable topics.
    """
    migration = [_SURVIVES_MIGRATION] if survives_migration else []
    body = pb.CommandSubscribe(
        topic=topic,
        subscription=how.subscription,
        subType=how.sub_type,
        consumer_id=consumer_id,
        consumer_name=how.consumer_name or None,
        durable=how.durable,
        start_message_id=None if how.start is None else _position(how.start),
        read_compacted=how.consumer.read_compacted or None,
        initialPosition=how.initial_position,
        force_topic_creation=False,
        start_message_rollback_duration_sec=how.rollback_s,
        metadata=_key_values([*how.consumer.properties, *migration]),
        subscription_properties=_key_values(how.subscription_properties),
        replicate_subscription_state=how.replicate_subscription_state or None,
    )
    return Request(pb.BaseCommand.SUBSCRIBE, body, pb.CommandSuccess)


def _key_values(pairs: Iterable[tuple[str, str]]) -> list[pb.KeyValue]:
    return [pb.KeyValue(key=key, value=value) for key, value in pairs]


def flow(consumer_id: int, permits: int) -> bytes:
    """Build FLOW: the broker may send this many more messages. Has no reply.

    Several of them where they are more than one can grant, as they are after an entry
    that says it has billions of messages.

    Raises:
        ValueError: permits is not above 0, which would cost the connection.
    """
    if permits <= 0:
        raise ValueError(f"FLOW cannot grant {permits} permits")
    whole, rest = divmod(permits, _MAX_FLOW_PERMITS)
    return b"".join(
        _encode(
            pb.BaseCommand(
                type=pb.BaseCommand.FLOW,
                flow=pb.CommandFlow(consumer_id=consumer_id, messagePermits=part),
            )
        )
        for part in [_MAX_FLOW_PERMITS] * whole + [rest] * (rest > 0)
    )


def ack_cumulative(
    consumer_id: int, message_id: MessageId
) -> Request[pb.CommandAckResponse]:
    """Build ACK of a message and all messages before.

    Args:
        consumer_id: Of an EXCLUSIVE or FAILOVER consumer; brokers ignore it on others.
        message_id: Last message that is done with. Inside of a batch, that is with a
            batch_index, it needs its batch_size; without, its whole entry is meant.

    Raises:
        ValueError: batch_index without a batch_size that holds it.
    """
    if message_id.batch_index >= 0:
        ack_set = ack_set_words(message_id.batch_index, message_id.batch_size)
        place = _bare_position(message_id, ack_set).SerializeToString()
    else:
        ledger_id = to_unsigned(message_id.ledger_id)
        place = numbers((_FIRST, ledger_id, _SECOND, to_unsigned(message_id.entry_id)))
    cumulative = pb.CommandAck.Cumulative
    body = numbers((_FIRST, consumer_id, _SECOND, cumulative, _THIRD, len(place)))
    return Request(pb.BaseCommand.ACK, body + place, pb.CommandAckResponse, consumer_id)


def seek_to_publish_time(
    consumer_id: int, publish_time_ms: int
) -> Request[pb.CommandSuccess]:
    """Build SEEK to the first entry at or after a time, in ms since 1970."""
    body = pb.CommandSeek(
        consumer_id=consumer_id,
        message_publish_time=publish_time_ms,
    )
    return Request(pb.BaseCommand.SEEK, body, pb.CommandSuccess)


def get_last_message_id(consumer_id: int) -> Request[TopicPositions]:
    """Build GET_LAST_MESSAGE_ID: where does this consumer's topic end?"""
    body = numbers((_FIRST, consumer_id))
    kind = pb.BaseCommand.GET_LAST_MESSAGE_ID
    return Request(kind, body, TopicPositions, consumer_id)


def close_consumer(consumer_id: int) -> Request[pb.CommandSuccess]:
    """Build CLOSE_CONSUMER. A subscription that is not durable ends with it."""
    body = numbers((_FIRST, consumer_id))
    return Request(pb.BaseCommand.CLOSE_CONSUMER, body, pb.CommandSuccess)


def unsubscribe(consumer_id: int) -> Request[pb.CommandSuccess]:
    """Build UNSUBSCRIBE, which deletes a subscription without other consumers."""
    body = pb.CommandUnsubscribe(consumer_id=consumer_id)
    return Request(pb.BaseCommand.UNSUBSCRIBE, body, pb.CommandSuccess)


def consumer_stats(consumer_id: int) -> Request[pb.CommandConsumerStatsResponse]:
    """Build CONSUMER_STATS. An unknown consumer costs the connection."""
    body = pb.CommandConsumerStats(consumer_id=consumer_id)
    return Request(pb.BaseCommand.CONSUMER_STATS, body, pb.CommandConsumerStatsResponse)


# -- producer --------------------------------------------------------------------------


def producer(
    *,
    topic: str,
    producer_id: int,
    producer_name: str = "",
    user_provided_producer_name: bool = True,
    epoch: int = 0,
    access_mode: ProducerAccessMode = ProducerAccessMode.SHARED,
    topic_epoch: int | None = None,
    txn_enabled: bool = False,
    properties: Mapping[str, str] | None = None,
    schema: pb.Schema | None = None,
    encrypted: bool = False,
) -> Request[pb.CommandProducerSuccess]:
    """Build PRODUCER. Creates the topic if the broker's policy allows that.

    Args:
        topic: Full name of a topic partition. The bare name of a partitioned topic
            would be taken for another topic that no one reads.
        producer_id: Of the new producer, unique on the connection.
        producer_name: "" for one that the broker makes up.
        user_provided_producer_name: False when such a name is used again.
        epoch: Counts the attachments under one name.
        access_mode: Whom it shares the topic with.
        topic_epoch: What the first PRODUCER_SUCCESS said; only for exclusive modes.
        txn_enabled: Whether it will send in transactions.
        properties: Shown in the topic's statistics.
        schema: Of the values; registered if the topic does not have it. None for none:
            a schema that says so would keep all others out.
        encrypted: Whether it encrypts all that it sends, as a topic may demand.
    """
    body = pb.CommandProducer(
        topic=topic,
        producer_id=producer_id,
        producer_name=producer_name or None,
        user_provided_producer_name=user_provided_producer_name,
        epoch=epoch,
        producer_access_mode=access_mode,
        topic_epoch=topic_epoch,
        txn_enabled=txn_enabled or None,
        metadata=_key_values((properties or {}).items()),
        schema=schema,
        encrypted=encrypted or None,
    )
    return Request(pb.BaseCommand.PRODUCER, body, pb.CommandProducerSuccess)


def close_producer(producer_id: int) -> Request[pb.CommandSuccess]:
    """Build CLOSE_PRODUCER. Its answer comes behind all receipts of what was sent."""
    body = pb.CommandCloseProducer(producer_id=producer_id)
    return Request(pb.BaseCommand.CLOSE_PRODUCER, body, pb.CommandSuccess)


# -- transactions ----------------------------------------------------------------------


def tc_client_connect(
    tc_id: int, *, is_scalable: bool = False
) -> Request[pb.CommandTcClientConnectResponse]:
    """Build TC_CLIENT_CONNECT_REQUEST: load this transaction coordinator.

    Args:
        tc_id: Its number.
        is_scalable: Whether to load the coordinator for scalable topics.
    """
    body = pb.CommandTcClientConnectRequest(tc_id=tc_id, scalable=is_scalable or None)
    return Request(
        pb.BaseCommand.TC_CLIENT_CONNECT_REQUEST,
        body,
        pb.CommandTcClientConnectResponse,
    )


def new_txn(
    tc_id: int, ttl_ms: int, *, is_scalable: bool = False
) -> Request[pb.CommandNewTxnResponse]:
    """Build NEW_TXN. No answer comes while too many transactions are open.

    Args:
        tc_id: Number of the coordinator.
        ttl_ms: Milliseconds after which the coordinator aborts it; it does so at once
            with less than 100.
        is_scalable: Whether the transaction writes to scalable topics.

    Raises:
        ValueError: ttl_ms is below 100.
    """
    if ttl_ms < _MIN_TXN_TTL_MS:
        raise ValueError(f"a transaction cannot live for {ttl_ms} ms")
    body = pb.CommandNewTxn(
        txn_ttl_millis=ttl_ms, tc_id=tc_id, scalable=is_scalable or None
    )
    return Request(pb.BaseCommand.NEW_TXN, body, pb.CommandNewTxnResponse)


def add_partitions_to_txn(
    txn: TxnId, topics: Sequence[str]
) -> Request[pb.CommandAddPartitionToTxnResponse]:
    """Build ADD_PARTITION_TO_TXN. Its answer must come before the first SEND there.

    Args:
        txn: The transaction.
        topics: Full names of topic partitions.
    """
    body = pb.CommandAddPartitionToTxn(
        txnid_most_bits=txn.most,
        txnid_least_bits=txn.least,
        partitions=topics,
        scalable=txn.is_scalable or None,
    )
    return Request(
        pb.BaseCommand.ADD_PARTITION_TO_TXN, body, pb.CommandAddPartitionToTxnResponse
    )


def end_txn(txn: TxnId, action: TxnAction) -> Request[pb.CommandEndTxnResponse]:
    """Build END_TXN. Its answer comes when every topic partition has its marker."""
    body = pb.CommandEndTxn(
        txnid_most_bits=txn.most,
        txnid_least_bits=txn.least,
        txn_action=action,
        scalable=txn.is_scalable or None,
    )
    return Request(pb.BaseCommand.END_TXN, body, pb.CommandEndTxnResponse)


#: Below every transaction: the -1 of Java. The broker drops none as outdated.
_NO_WATERMARK = 2**64 - 1


def end_txn_on_partition(
    txn: TxnId, topic: str, action: TxnAction
) -> Request[pb.CommandEndTxnOnPartitionResponse]:
    """Build END_TXN_ON_PARTITION, which brokers take from superusers only.

    A coordinator sends this request to the broker of each topic partition. To repeat it
    adds a marker and changes nothing else.
    """
    body = pb.CommandEndTxnOnPartition(
        txnid_most_bits=txn.most,
        txnid_least_bits=txn.least,
        topic=topic,
        txn_action=action,
        txnid_least_bits_of_low_watermark=_NO_WATERMARK,
    )
    return Request(
        pb.BaseCommand.END_TXN_ON_PARTITION, body, pb.CommandEndTxnOnPartitionResponse
    )


def _encode(command: pb.BaseCommand) -> bytes:
    return encode_frame(command.SerializeToString())


# -- what the broker sends -------------------------------------------------------------

#: The protocol's name of each type that we know.
_NAMES = {int(number): name for name, number in pb.BaseCommand.Type.items()}

#: Field of BaseCommand that holds the body of each type we know, by the type's number,
#: which is the field's, too.
_BODY_FIELDS = {
    field.number: field.name
    for field in pb.BaseCommand.DESCRIPTOR.fields
    if field.name != "type"
}

#: Whose body has nothing in it and may be left out.
_BODILESS = frozenset({pb.BaseCommand.PING, pb.BaseCommand.PONG})

#: Fields that say whom a command is for. A body must have each field that its message
#: declares, but for the request_id of ACK and of its answer.
_IDS = ("request_id", "consumer_id", "producer_id", "resource_id")
_REQUIRED_IDS = {
    field.number: tuple(
        name
        for name in _IDS
        if name in field.message_type.fields_by_name
        and not (name == "request_id" and field.name in ("ack", "ackResponse"))
    )
    for field in pb.BaseCommand.DESCRIPTOR.fields
    if field.message_type is not None
}

#: Fields whose text must be checked. MESSAGE, of which there are many, has none.
_BODIES_WITH_TEXT = frozenset(
    field.number
    for field in pb.BaseCommand.DESCRIPTOR.fields
    if field.message_type is not None and holds_text(field.message_type)
)


#: No command is larger, but for a list of topics. An element of two bytes may take
#: eighty in memory.
_USUAL_BYTES = 1 << 20

#: A list of topics: its type, and the tag of its body; the tag of each name in there.
_LIST_HEAD = b"\x08\x21\x8a\x02"
_NAME_TAG = b"\x12"
_LIST_BYTES = 16 << 20
_LIST_NAMES = 1_000_000


def command_name(command_type: int) -> str:
    """Return the protocol's name of a type, such as ``LOOKUP_RESPONSE``."""
    return _NAMES.get(command_type) or f"unknown type {command_type}"


def decode_command(data: bytes | memoryview) -> pb.BaseCommand:
    """Return the command of a frame.

    Its type may be one that we do not know; such commands are to be ignored.

    Args:
        data: `Frame.command`.

    Raises:
        ProtocolError: The bytes are no BaseCommand; or it lacks its type, its body or
            an id that says whom it is for; or its text is not UTF-8; or it is larger
            than a command can be.
    """
    if len(data) > _USUAL_BYTES:
        _check_size(bytes(data))
    try:
        command = pb.BaseCommand.FromString(bytes(data))
    except UNREADABLE as error:
        raise ProtocolError(
            f"A command of {len(data)} bytes cannot be decoded: {error}."
        ) from None
    if not command.HasField("type"):
        raise ProtocolError(f"A command of {len(data)} bytes has no type.")
    _check_body(command)
    return command


def _check_size(data: bytes) -> None:
    """Refuse bytes that would grow to many times their size when decoded."""
    if _is_topic_list(data):
        # As many names as this byte at most: each of them begins with it.
        if len(data) <= _LIST_BYTES and data.count(_NAME_TAG) <= _LIST_NAMES:
            return
        raise ProtocolError(
            f"A list of topics of {len(data)} bytes is larger than the limit of "
            f"{_LIST_BYTES} bytes and {_LIST_NAMES:,} names.",
            size_bytes=len(data),
            limit_bytes=_LIST_BYTES,
        )
    raise ProtocolError(
        f"A command of {len(data)} bytes is larger than the limit of {_USUAL_BYTES}."
    )


def _is_topic_list(data: bytes) -> bool:
    """Return whether the body is a list of topics, by its first bytes."""
    if not data.startswith(_LIST_HEAD):
        return False
    size, position, shift = 0, len(_LIST_HEAD), 0
    while data[position] & 0x80 and shift < _WORD_BITS:
        size |= (data[position] & 0x7F) << shift
        position, shift = position + 1, shift + 7
    size |= data[position] << shift
    return position + 1 + size == len(data)


def _check_body(command: pb.BaseCommand) -> None:
    body_field = _BODY_FIELDS.get(command.type)
    if body_field is None or command.type in _BODILESS:
        return
    # Its name is data here, not a literal as the stubs would have it.
    if not command.HasField(body_field):  # type: ignore[arg-type]
        raise ProtocolError(f"{command_name(command.type)} came without its body.")
    body = getattr(command, body_field)
    for name in _REQUIRED_IDS[command.type]:
        if not body.HasField(name):
            raise ProtocolError(
                f"{command_name(command.type)} came without its {name}."
            )
    if command.type in _BODIES_WITH_TEXT and (name := undecodable_text(body)):
        raise ProtocolError(
            f"{command_name(command.type)} came with a {name} that is not UTF-8."
        )
    if command.type == pb.BaseCommand.MESSAGE:
        place = command.message.message_id
        if not (place.HasField("ledgerId") and place.HasField("entryId")):
            raise ProtocolError("MESSAGE came without its message_id.")
