# SPDX-License-Identifier: Apache-2.0
"""Commands: golden bytes, what a reader must never ask for, and what is refused."""

from __future__ import annotations

import inspect
from dataclasses import replace
from enum import IntEnum
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_spark.errors import ProtocolError
from pulsar_spark.message_id import (
    EARLIEST,
    LATEST,
    MessageId,
    TopicPositions,
    TxnId,
)
from pulsar_spark.wire import commands
from pulsar_spark.wire import pulsar_api_pb2 as pb
from pulsar_spark.wire.commands import (
    ConsumerSettings,
    InitialPosition,
    ProducerAccessMode,
    Request,
    SubscribeRequest,
    SubType,
    TxnAction,
    ack_set_words,
    command_name,
    decode_command,
    from_message_id_data,
    to_message_id_data,
    to_signed,
    to_unsigned,
)
from pulsar_spark.wire.frames import FrameReader, split_entry
from pulsar_spark.wire.protocol import ClientProtocol
from tests.wire import builders

if TYPE_CHECKING:
    from collections.abc import Iterator

TOPIC = "persistent://public/default/t-partition-0"
NONE_U64 = 18446744073709551615


def golden(text: str) -> bytes:
    """Return bytes written as hexadecimal digits, spaces between parts allowed."""
    return bytes.fromhex(text.replace(" ", ""))


def sent(built: Request[Any] | bytes, request_id: int = 5) -> pb.BaseCommand:
    """Return the one command in a frame that was built."""
    reader = FrameReader()
    reader.receive_data(built if isinstance(built, bytes) else built.encode(request_id))
    read = reader.next_frame()
    assert read is not None
    assert read.payload == b""
    assert reader.next_frame() is None
    return decode_command(read.command)


def subscribe(**changes: Any) -> pb.CommandSubscribe:
    """Return the body of a SUBSCRIBE of a non-durable reader, with changes."""
    how = replace(SubscribeRequest("reader-1"), **changes)
    return sent(commands.subscribe(TOPIC, 7, how), 3).subscribe


# -- golden bytes: the fact sheet's worked examples ------------------------------------


def test_connect_to_the_byte():
    """CONNECT is the 46 bytes of the fact sheet."""
    assert commands.connect("pulsar-spark-0.1") == golden(
        "0000002a00000026080212220a1070756c7361722d737061726b2d302e3120152a046e6f6e65"
        "5206080110012801"
    )


def test_flow_to_the_byte():
    """FLOW for consumer 7 with 1000 permits."""
    assert commands.flow(7, 1000) == golden("0000000d 00000009 080b 5a05 0807 10e807")


def test_ping_and_pong_to_the_byte():
    """Both have a type and an empty body."""
    assert commands.ping() == golden("00000009 00000005 0812 920100")
    assert commands.pong() == golden("00000009 00000005 0813 9a0100")


def test_cumulative_ack_inside_a_batch_to_the_byte():
    """Message 0 of 2 done: the bit of message 1 is set."""
    request = commands.ack_cumulative(7, MessageId(33, 5, batch_index=0, batch_size=2))
    assert request.encode(9) == golden(
        "00000016 00000012 080a 520e 0807 1001 1a06 0821 1005 2802 4009"
    )


def test_earliest_and_latest_to_the_byte():
    """Two ids are positions by agreement; -1 travels as 2^64-1."""
    earliest = to_message_id_data(EARLIEST).SerializeToString()
    latest = to_message_id_data(LATEST).SerializeToString()
    assert earliest == golden("08ffffffffffffffffff01 10ffffffffffffffffff01")
    assert latest == golden("08ffffffffffffffff7f 10ffffffffffffffff7f")


def test_reads_the_golden_message():
    """A MESSAGE of the wire gives its consumer, id, and both metadata."""
    reader = FrameReader()
    reader.receive_data(
        golden(
            "0000005b 00000017 08094a130807120f0821100518ffffffffffffffffff01"
            "0e01 942cbff4 00000012 0a027031100a1880d095ffbc315802c0010b"
            "00000008 12026b311805400a 68656c6c6f"
            "0000000c 0a060a01611201621803400b 616263"
        )
    )
    frame = reader.next_frame()
    assert frame is not None
    command = decode_command(frame.command)
    assert command.message.consumer_id == 7
    assert from_message_id_data(command.message.message_id) == MessageId(33, 5)
    metadata = pb.MessageMetadata.FromString(bytes(split_entry(frame.payload).metadata))
    assert metadata.producer_name == "p1"
    assert metadata.publish_time == 1_700_000_000_000
    assert metadata.num_messages_in_batch == 2
    assert metadata.highest_sequence_id == 11


# -- numbers ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("signed", "unsigned"),
    [
        (0, 0),
        (-1, NONE_U64),
        (2**63 - 1, 2**63 - 1),
        (-(2**63), 2**63),
        (-42, 2**64 - 42),
    ],
)
def test_minus_one_travels_as_the_largest_number(signed: int, unsigned: int):
    """Signed and unsigned forms of one number, both ways."""
    assert to_unsigned(signed) == unsigned
    assert to_signed(unsigned) == signed


ids = st.integers(-1, 2**63 - 1)
message_ids = st.builds(
    MessageId,
    ids,
    ids,
    st.integers(-1, 2**31 - 1),
    st.integers(-1, 2**31 - 1),
    st.integers(0, 2**31 - 1),
    st.none() | st.builds(MessageId, ids, ids, partition=st.integers(-1, 99)),
)


@given(message_ids)
def test_message_ids_survive_the_wire(message_id: MessageId):
    """Every part of an id comes back, defaults and the first chunk included."""
    data = to_message_id_data(message_id).SerializeToString()
    assert from_message_id_data(pb.MessageIdData.FromString(data)) == message_id


def test_empty_topic_id_is_minus_one():
    """What GET_LAST_MESSAGE_ID says of an empty topic is -1:-1 with its partition."""
    data = pb.MessageIdData(ledgerId=NONE_U64, entryId=NONE_U64, partition=3)
    assert from_message_id_data(data) == MessageId(-1, -1, partition=3)


def test_ids_nested_too_deeply_are_cut():
    """A stream cannot make us recurse: only the first chunk of an id is read."""
    data = pb.MessageIdData(ledgerId=1, entryId=1)
    for _ in range(50):
        data = pb.MessageIdData(ledgerId=1, entryId=1, first_chunk_message_id=data)
    first = from_message_id_data(data).first_chunk
    assert first is not None
    assert first.first_chunk is None


# -- ack sets --------------------------------------------------------------------------


def pending(words: list[int]) -> Iterator[int]:
    """Yield the messages whose bit is set, as a broker reads them."""
    for place, word in enumerate(words):
        for bit in range(64):
            if (word >> bit) & 1:
                yield 64 * place + bit


@pytest.mark.parametrize(
    ("batch_index", "batch_size", "words"),
    [
        (-1, 4, [0b1111]),
        (0, 2, [0b10]),
        (2, 3, []),
        (0, 1, []),
        (0, 64, [-2]),
        (62, 64, [-(2**63)]),
        (63, 65, [0, 1]),
        (63, 128, [0, -1]),
    ],
)
def test_ack_set_words(batch_index: int, batch_size: int, words: list[int]):
    """1 means not acknowledged; words are signed; a batch that is done has none."""
    assert ack_set_words(batch_index, batch_size) == words


@given(
    st.integers(1, 400).flatmap(lambda n: st.tuples(st.integers(-1, n - 1), st.just(n)))
)
def test_ack_set_has_exactly_the_rest_of_the_batch(case: tuple[int, int]):
    """No bit behind the end, no word that proto would refuse, never all zero."""
    batch_index, batch_size = case
    words = ack_set_words(batch_index, batch_size)
    assert list(pending(words)) == list(range(batch_index + 1, batch_size))
    assert bool(words) == (batch_index + 1 < batch_size)
    assert pb.MessageIdData(ack_set=words).ack_set == words


@pytest.mark.parametrize(("batch_index", "batch_size"), [(-2, 3), (3, 3), (0, 0)])
def test_ack_set_needs_an_index_in_the_batch(batch_index: int, batch_size: int):
    """An index outside of the batch is our own mistake."""
    with pytest.raises(ValueError, match="is not in a batch"):
        ack_set_words(batch_index, batch_size)


def test_ack_set_is_unpacked():
    """One tag for each word, as brokers write and read it."""
    data = pb.MessageIdData(ack_set=[1, 2]).SerializeToString()
    assert data == golden("2801 2802")


# -- builders --------------------------------------------------------------------------


def test_connect_carries_credential_and_proxy():
    """What authentication and proxies need has its place; nothing else is set."""
    body = sent(
        commands.connect(
            "pulsar-spark-1",
            auth_method_name="token",
            auth_data=b"secret",
            proxy_to_broker_url="b:6650",
        )
    ).connect
    assert body.protocol_version == 21
    assert body.auth_method_name == "token"
    assert body.auth_data == b"secret"
    assert body.proxy_to_broker_url == "b:6650"
    plain = sent(commands.connect("pulsar-spark-1")).connect
    assert not plain.HasField("auth_data")
    assert not plain.HasField("proxy_to_broker_url")


def test_auth_response_has_both_inner_fields():
    """A broker cuts the connection if one of them is missing."""
    command = sent(commands.auth_response("v", auth_method_name="token", auth_data=b""))
    assert command.type == pb.BaseCommand.AUTH_RESPONSE
    assert command.authResponse.response.HasField("auth_method_name")
    assert command.authResponse.response.HasField("auth_data")


def test_lookup():
    """A Redirect's word is passed on; the listener is named only if there is one."""
    body = sent(commands.lookup(TOPIC), 4).lookupTopic
    assert (body.topic, body.request_id, body.authoritative) == (TOPIC, 4, False)
    assert not body.HasField("advertised_listener_name")
    body = sent(
        commands.lookup(TOPIC, authoritative=True, advertised_listener_name="in")
    ).lookupTopic
    assert body.authoritative
    assert body.advertised_listener_name == "in"


def test_asking_for_partitions_never_creates_a_topic():
    """The flag is sent, for its default is true."""
    body = sent(commands.partitioned_metadata(TOPIC), 4).partitionMetadata
    assert (body.topic, body.request_id) == (TOPIC, 4)
    assert body.HasField("metadata_auto_creation_enabled")
    assert not body.metadata_auto_creation_enabled


def test_a_writer_may_let_partitions_be_created():
    """The broker's policy decides then; the flag is sent, too."""
    request = commands.partitioned_metadata(TOPIC, auto_creation=True)
    body = sent(request).partitionMetadata
    assert body.HasField("metadata_auto_creation_enabled")
    assert body.metadata_auto_creation_enabled


def test_topics_of_namespace():
    """Persistent topics of one namespace, no filter of the broker's."""
    body = sent(commands.topics_of_namespace("public/default")).getTopicsOfNamespace
    assert body.namespace == "public/default"
    assert body.mode == pb.CommandGetTopicsOfNamespace.PERSISTENT
    assert not body.HasField("topics_pattern")
    assert not body.HasField("topics_hash")
    request = commands.topics_of_namespace("public/default", "public/default/a.*", "5")
    body = sent(request).getTopicsOfNamespace
    assert (body.topics_pattern, body.topics_hash) == ("public/default/a.*", "5")


def test_get_schema():
    """A version is sent with its 8 bytes, and the latest is asked for without one."""
    body = sent(commands.get_schema(TOPIC)).getSchema
    assert body.topic == TOPIC
    assert not body.HasField("schema_version")
    body = sent(commands.get_schema(TOPIC, bytes(7) + b"\3")).getSchema
    assert body.schema_version == bytes(7) + b"\3"


@pytest.mark.parametrize("size", [*range(1, 8), 9, 64])
def test_get_schema_of_no_version(size: int):
    """A broker would end the connection, or take a part of it for a version."""
    with pytest.raises(ValueError, match=f"has {size} bytes"):
        commands.get_schema(TOPIC, bytes(size))


def test_subscribing_never_creates_a_topic():
    """The flag is sent, for its default is true."""
    for durable in (True, False):
        body = subscribe(durable=durable)
        assert body.HasField("force_topic_creation")
        assert not body.force_topic_creation
        assert body.HasField("durable")
        assert body.durable == durable


def test_subscribe_of_a_plain_reader():
    """Exclusive, not durable, and nothing that was not asked for."""
    body = subscribe(start=EARLIEST)
    assert (body.topic, body.subscription) == (TOPIC, "reader-1")
    assert (body.consumer_id, body.request_id) == (7, 3)
    assert body.HasField("subType")
    assert body.subType == pb.CommandSubscribe.Exclusive
    assert body.start_message_id.ledgerId == NONE_U64
    for name in (
        "consumer_name",
        "read_compacted",
        "replicate_subscription_state",
        "start_message_rollback_duration_sec",
        "schema",
    ):
        assert not body.HasField(name)


def test_subscribe_with_everything():
    """Each argument reaches its field."""
    body = subscribe(
        initial_position=InitialPosition.EARLIEST,
        consumer=ConsumerSettings(read_compacted=True, properties=[("a", "1")]),
        sub_type=SubType.FAILOVER,
        consumer_name="c",
        rollback_s=60,
        subscription_properties=[("b", "2"), ("c", "")],
        replicate_subscription_state=True,
    )
    assert [(p.key, p.value) for p in body.metadata] == [("a", "1")]
    properties = [(p.key, p.value) for p in body.subscription_properties]
    assert properties == [("b", "2"), ("c", "")]
    assert body.replicate_subscription_state
    assert not body.HasField("start_message_id")
    assert body.initialPosition == pb.CommandSubscribe.Earliest
    assert body.read_compacted
    assert body.subType == pb.CommandSubscribe.Failover
    assert body.consumer_name == "c"
    assert body.start_message_rollback_duration_sec == 60


def test_subscribe_starts_at_the_first_chunk():
    """The last chunk alone would be of no use."""
    chunked = MessageId(9, 20, first_chunk=MessageId(9, 17))
    start = subscribe(start=chunked).start_message_id
    assert (start.ledgerId, start.entryId) == (9, 17)


def test_a_durable_subscription_has_no_start():
    """A broker would ignore it and deliver other rows than were asked for."""
    with pytest.raises(ValueError, match="seek instead"):
        subscribe(durable=True, start=EARLIEST)


@pytest.mark.parametrize(
    ("permits", "parts"),
    [
        (2**31 - 1, [2**31 - 1]),
        (2**31, [2**31 - 1, 1]),
        (6442460938, [2**31 - 1] * 3 + [9997]),
    ],
)
def test_flow_beyond_what_a_broker_can_count(permits: int, parts: list[int]):
    """More than an int32 is granted in several commands: a broker takes no more."""
    reader = FrameReader()
    reader.receive_data(commands.flow(7, permits))
    found = []
    while (frame := reader.next_frame()) is not None:
        command = commands.decode_command(frame.command)
        assert command.flow.consumer_id == 7
        found.append(command.flow.messagePermits)
    assert found == parts


@pytest.mark.parametrize("permits", [1, 2, 2**31 - 1])
def test_flow_grants_from_one_on(permits: int):
    """As many as the number on the wire can say."""
    command = commands.decode_command(commands.flow(1, permits)[8:])
    assert command.flow.messagePermits == permits


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (SubType, pb.CommandSubscribe.SubType),
        (InitialPosition, pb.CommandSubscribe.InitialPosition),
        (ProducerAccessMode, pb.CommandProducer.ProducerAccessMode),
        (TxnAction, pb.TxnAction),
    ],
)
def test_numbers_are_those_of_the_protocol(ours: Any, theirs: Any):
    """Each name that is used stands for the number that the .proto file gives it."""
    names = {name.lower().replace("_", ""): number for name, number in theirs.items()}
    for member in ours:
        assert names[member.name.lower().replace("_", "")] == member.value


@pytest.mark.parametrize("permits", [0, -1])
def test_flow_refuses_what_would_cut_the_connection(permits: int):
    """0 permits end the connection; negative ones do not exist."""
    with pytest.raises(ValueError, match=f"grant {permits} permits"):
        commands.flow(1, permits)


@pytest.mark.parametrize(
    "message_id",
    [MessageId(3, 4), MessageId(3, 4, batch_index=9, batch_size=10, partition=2)],
)
def test_ack_of_a_whole_entry_has_no_ack_set(message_id: MessageId):
    """Single messages and the last one of a batch; the reply is asked for."""
    body = sent(commands.ack_cumulative(1, message_id)).ack
    assert body.ack_type == pb.CommandAck.Cumulative
    assert body.request_id == 5
    [data] = body.message_id
    assert (data.ledgerId, data.entryId, list(data.ack_set)) == (3, 4, [])


def test_ack_inside_a_batch_of_unknown_size_is_refused():
    """It could only acknowledge too much."""
    with pytest.raises(ValueError, match="not in a batch of 0"):
        commands.ack_cumulative(1, MessageId(3, 4, batch_index=2))


def test_seek_to_publish_time():
    """A time, and no id beside it."""
    body = sent(commands.seek_to_publish_time(1, 1_700_000_000_000)).seek
    assert body.message_publish_time == 1_700_000_000_000
    assert not body.HasField("message_id")


@pytest.mark.parametrize(
    ("build", "command_type", "body"),
    [
        (commands.get_last_message_id, "GET_LAST_MESSAGE_ID", "getLastMessageId"),
        (commands.close_consumer, "CLOSE_CONSUMER", "close_consumer"),
        (commands.unsubscribe, "UNSUBSCRIBE", "unsubscribe"),
        (commands.consumer_stats, "CONSUMER_STATS", "consumerStats"),
        (commands.close_producer, "CLOSE_PRODUCER", "close_producer"),
    ],
)
def test_commands_with_two_ids(build, command_type: str, body: str):
    """Whom it is about, also when that is 0, and which request it is."""
    command = sent(build(0))
    assert command_name(command.type) == command_type
    whose = "producer_id" if "producer" in body else "consumer_id"
    assert getattr(command, body).HasField(whose)
    assert getattr(command, body).HasField("request_id")
    assert getattr(getattr(command, body), whose) == 0
    assert getattr(command, body).request_id == 5


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (commands.SubType, pb.CommandSubscribe.SubType),
        (ProducerAccessMode, pb.CommandProducer.ProducerAccessMode),
    ],
)
def test_numbers_of_words(ours: type[IntEnum], theirs: Any):
    """An enum has the protocol's numbers."""
    numbers = {name.replace("_", "").lower(): value for name, value in theirs.items()}
    assert {one.name.replace("_", "").lower(): one.value for one in ours} == numbers


def test_a_plain_producer():
    """The broker names it; nothing that was not asked for."""
    body = sent(commands.producer(topic=TOPIC, producer_id=0)).producer
    assert (body.topic, body.producer_id, body.request_id) == (TOPIC, 0, 5)
    assert body.HasField("producer_id")
    assert body.user_provided_producer_name
    assert body.producer_access_mode == pb.CommandProducer.Shared
    assert body.epoch == 0
    assert not body.metadata
    for name in ("producer_name", "topic_epoch", "txn_enabled", "schema", "encrypted"):
        assert not body.HasField(name)


def test_a_producer_with_everything():
    """Each argument reaches its field, 0 as a topic_epoch included."""
    body = sent(
        commands.producer(
            topic=TOPIC,
            producer_id=8,
            producer_name="p",
            user_provided_producer_name=False,
            epoch=3,
            access_mode=ProducerAccessMode.EXCLUSIVE_WITH_FENCING,
            topic_epoch=0,
            txn_enabled=True,
            properties={"a": "b", "c": ""},
        )
    ).producer
    assert body.producer_name == "p"
    assert not body.user_provided_producer_name
    assert body.epoch == 3
    assert body.producer_access_mode == pb.CommandProducer.ExclusiveWithFencing
    assert body.HasField("topic_epoch")
    assert body.topic_epoch == 0
    assert body.txn_enabled
    assert [(pair.key, pair.value) for pair in body.metadata] == [("a", "b"), ("c", "")]


def test_connecting_to_a_coordinator():
    """The first one has the number 0."""
    body = sent(commands.tc_client_connect(0)).tcClientConnectRequest
    assert body.HasField("tc_id")
    assert (body.tc_id, body.request_id) == (0, 5)


def test_new_txn():
    """The time to live is in milliseconds."""
    body = sent(commands.new_txn(0, 60_000)).newTxn
    assert body.HasField("tc_id")
    assert (body.tc_id, body.request_id, body.txn_ttl_millis) == (0, 5, 60_000)


def test_new_txn_to_the_byte():
    """Coordinator 3, 100 ms: the shortest life that is one."""
    assert commands.new_txn(3, 100).encode(5) == golden(
        "0000000f 0000000b 0832 920306 0805 1064 1803"
    )


@pytest.mark.parametrize("ttl_ms", [99, 60, 0, -1])
def test_a_transaction_that_would_end_at_once(ttl_ms: int):
    """Seconds taken for milliseconds are noticed before a broker aborts it."""
    with pytest.raises(ValueError, match=f"live for {ttl_ms} ms"):
        commands.new_txn(0, ttl_ms)


@pytest.mark.parametrize("txn", [TxnId(0, 0), TxnId(3, 2**64 - 1)])
def test_add_partitions_to_txn(txn: TxnId):
    """All of them in one request; 0:0 is a transaction."""
    topics = [TOPIC, f"{TOPIC}1"]
    body = sent(commands.add_partitions_to_txn(txn, topics)).addPartitionToTxn
    assert TxnId(body.txnid_most_bits, body.txnid_least_bits) == txn
    assert body.HasField("txnid_most_bits")
    assert body.HasField("txnid_least_bits")
    assert body.partitions == topics
    assert body.request_id == 5


@pytest.mark.parametrize("action", TxnAction)
def test_end_txn(action: TxnAction):
    """The action is set, also the one that is 0."""
    body = sent(commands.end_txn(TxnId(0, 0), action)).endTxn
    assert (body.txnid_most_bits, body.txnid_least_bits) == (0, 0)
    assert body.HasField("txnid_most_bits")
    assert body.HasField("txnid_least_bits")
    assert body.HasField("txn_action")
    assert body.txn_action == action
    assert body.request_id == 5


@pytest.mark.parametrize(
    ("action", "number"), [(TxnAction.COMMIT, "00"), (TxnAction.ABORT, "01")]
)
def test_end_txn_to_the_byte(action: TxnAction, number: str):
    """What makes rows visible and what drops them must not be mixed up."""
    assert commands.end_txn(TxnId(3, 7), action).encode(5) == golden(
        f"00000011 0000000d 0838 c20308 0805 1007 1803 20{number}"
    )


# -- decoding --------------------------------------------------------------------------


def test_number_of_a_body_is_the_number_of_its_type():
    """Every type has its body, and the other way round."""
    fields = {f.number for f in pb.BaseCommand.DESCRIPTOR.fields} - {1}
    assert fields == set(pb.BaseCommand.Type.values())


def test_no_field_is_a_closed_enum_or_required():
    """A newer broker's value must arrive as its number, not vanish."""
    for message in pb.DESCRIPTOR.message_types_by_name.values():
        for field in message.fields:
            assert field.enum_type is None, field.full_name
            assert "required" not in str(getattr(field, "label", "")), field.full_name


def test_messages_do_not_clash_with_the_official_client():
    """File and package are our own, so both can be loaded in one process."""
    assert pb.DESCRIPTOR.name == "pulsar_spark/wire/pulsar_api.proto"
    assert pb.DESCRIPTOR.package == "pulsar_spark.wire"


def test_unknown_type_is_a_command():
    """Brokers of the future may send it; it is for the caller to ignore."""
    command = decode_command(golden("0863 9a0600"))
    assert command.type == 99
    assert command_name(command.type) == "unknown type 99"


def test_unknown_error_code_is_kept():
    """A code that is new to us arrives as its number."""
    command = decode_command(golden("080e 7207 0801 106f 1a0178"))
    assert command.error.error == 111


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ("ff", "cannot be decoded"),
        ("0808ff", "cannot be decoded"),
        ("", "has no type"),
        ("9a0100", "has no type"),
        ("0809", "MESSAGE came without its body"),
        ("0809 4a00", "MESSAGE came without its consumer_id"),
        ("0809 4a020807", "MESSAGE came without its message_id"),
        ("0809 4a0608071202 0821", "MESSAGE came without its message_id"),
        ("080d 6a00", "SUCCESS came without its request_id"),
        ("0810 8201021001", "CLOSE_CONSUMER came without its consumer_id"),
        ("0844 a20400", "TOPIC_MIGRATED came without its resource_id"),
    ],
)
def test_garbage_is_refused(data: str, text: str):
    """What could reach the wrong addressee is an error that says what is missing."""
    with pytest.raises(ProtocolError, match=text):
        decode_command(golden(data))


def test_ping_needs_no_body():
    """Its body has nothing in it; some sender may leave it out."""
    assert decode_command(golden("0812")).type == pb.BaseCommand.PING


def test_ack_needs_no_request_id():
    """Neither ACK nor its answer must have one."""
    assert decode_command(golden("0826 b202020807")).ackResponse.consumer_id == 7
    assert decode_command(golden("080a 52020807")).ack.consumer_id == 7


@given(st.binary(max_size=60))
def test_any_bytes_are_a_command_or_a_protocol_error(data: bytes):
    """Never another exception, from bytes and views alike."""
    assert outcome(data) == outcome(memoryview(data))


def outcome(data: bytes | memoryview) -> object:
    """Return the command in canonical bytes, or the error's text."""
    try:
        return decode_command(data).SerializeToString(deterministic=True)
    except ProtocolError as error:
        return str(error)


def requests() -> dict[str, Request[Any]]:
    """Every command that is answered, by the name of its builder."""
    given: dict[str, Any] = {
        "topic": "t",
        "namespace": "a/b",
        "how": SubscribeRequest("s"),
        "ttl_ms": 1000,
        "message_id": MessageId(1, 2),
        "txn": TxnId(0, 1),
        "topics": ["t"],
        "subscription": "s",
        "consumer_name": "c",
        "action": commands.TxnAction.COMMIT,
    }
    built = {}
    for name, build in vars(commands).items():
        if not (inspect.isfunction(build) and build.__module__ == commands.__name__):
            continue
        signature = inspect.signature(build)
        if str(signature.return_annotation).startswith("Request["):
            wanted = {
                key: given.get(key, 7)
                for key, parameter in signature.parameters.items()
                if parameter.default is parameter.empty
            }
            built[name] = build(**wanted)
    return built


def test_no_other_command_has_a_reply():
    """What is built as a frame has no request id that a broker could answer."""
    for built in (commands.connect("v"), commands.ping(), commands.flow(1, 1)):
        command = sent(built)
        field = pb.BaseCommand.DESCRIPTOR.fields_by_number[command.type]
        assert "request_id" not in field.message_type.fields_by_name


def answer_of(request: Request[Any]) -> Any:
    """The body of the reply to a request, as the protocol has it."""
    if request.reply_type is TopicPositions:
        return pb.CommandGetLastMessageIdResponse
    return request.reply_type


@pytest.mark.parametrize(("name", "request_"), requests().items())
def test_every_request_knows_its_answer(name: str, request_: Request[Any]):
    """The class of the reply's body, which carries the number of the request."""
    answer = answer_of(request_)
    assert commands.number_field(answer) in answer.DESCRIPTOR.fields_by_name


@pytest.mark.parametrize(("name", "request_"), requests().items())
def test_every_reply_reaches_its_request(name: str, request_: Request[Any]):
    """A reply without a handler would be dropped, and its request wait in vain."""
    fields = [
        field
        for field in pb.BaseCommand.DESCRIPTOR.fields
        if field.message_type is answer_of(request_).DESCRIPTOR
    ]
    assert fields, name
    for field in fields:
        command = pb.BaseCommand(type=field.number)
        body = getattr(command, field.name)
        body.SetInParent()
        _fill_required(body)
        if "consumer_id" in body.DESCRIPTOR.fields_by_name:
            body.consumer_id = 1
        setattr(body, commands.number_field(body), 7)
        protocol = ClientProtocol(b"")
        list(protocol.receive_data(builders.connected()))
        events = protocol.receive_data(builders.frame(command.SerializeToString()))
        assert [getattr(event, "request_id", None) for event in events] == [7], name


def _fill_required(body: Any) -> None:
    for field in body.DESCRIPTOR.fields:
        if field.label == field.LABEL_REQUIRED and not body.HasField(field.name):
            if field.message_type is not None:
                getattr(body, field.name).SetInParent()
                _fill_required(getattr(body, field.name))
            else:
                setattr(body, field.name, "" if field.type == field.TYPE_STRING else 0)


@pytest.mark.parametrize("request_", requests().values(), ids=requests())
def test_a_request_may_be_encoded_again(request_: Request[Any]):
    """Each frame has its own request id, and nothing else differs."""
    field = pb.BaseCommand.DESCRIPTOR.fields_by_number[request_.command.type].name
    seen = []
    for request_id in (0, 2**63):
        command = sent(request_, request_id)
        body = getattr(command, field)
        number = commands.number_field(body)
        assert body.HasField(number)
        assert getattr(body, number) == request_id
        body.ClearField(number)
        seen.append(command)
    assert seen == [request_.command] * 2


def test_the_names_of_requests():
    """They are the protocol's, as errors name them."""
    assert commands.lookup("t").name == "LOOKUP"
    assert commands.get_last_message_id(1).name == "GET_LAST_MESSAGE_ID"
    assert commands.tc_client_connect(0).name == "TC_CLIENT_CONNECT"


@pytest.mark.parametrize("size", [0, 1, 2])
def test_the_size_of_a_batch_is_sent_where_it_is_known(size: int):
    """Also of a batch of one message."""
    data = to_message_id_data(MessageId(3, 5, 0, batch_size=size))
    assert data.HasField("batch_size") == (size > 0)
    assert data.batch_size == size


def test_schema_of_a_producer() -> None:
    """It is said whole; the type that is none is never sent."""
    schema = commands.schema(15, b"data", {"a": "b"}, "KeyValue")
    request = commands.producer(topic="t", producer_id=1, schema=schema)
    assert request.command.producer.schema == pb.Schema(
        name="KeyValue",
        type=15,
        schema_data=b"data",
        properties=[pb.KeyValue(key="a", value="b")],
    )
    untyped = commands.producer(topic="t", producer_id=1).command
    assert not untyped.producer.HasField("schema")
    for number in (0, -1):
        with pytest.raises(ValueError, match="cannot be registered"):
            commands.schema(number, b"", {})
