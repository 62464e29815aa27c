# SPDX-License-Identifier: Apache-2.0
"""Conversations of the client with a broker that means no good, or has no luck.

Between the scripted broker and the client stands a :class:`Mutator`. Faults are what a
bad network or a confused broker does, and a client must see through them: frames that
are damaged, cut off, late, lost, repeated or refused, and frames that nobody asked for.
What is read or written in spite of them is exactly right. Lies are frames that look
right and are not: wrong ids, counts, places and names, and replies of another kind.
Nobody can see through all of them, so only this is asked for: one clear error, or an
end, each in time, and never an exception that is not ours.

Everything follows from a seed, but for the order in which threads get their turn.
"""

from __future__ import annotations

import contextlib
import random
import struct
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from google.protobuf.descriptor import FieldDescriptor

from pulsar_spark.client.pool import ConnectionPool
from pulsar_spark.client.producing.producers import Producers, ProducerSettings
from pulsar_spark.client.transactions import COORDINATORS, TransactionClient
from pulsar_spark.errors import SERVER_ERRORS
from pulsar_spark.options import ReadOptions
from pulsar_spark.sink import journal
from pulsar_spark.sink.journal import Journal
from pulsar_spark.source.plan.batch_plan import plan_batch
from pulsar_spark.source.read.range_reader import RangeReader
from pulsar_spark.source.stream.pulsar_cluster import stream_planner
from pulsar_spark.topics import TopicName, compile_topics_pattern
from pulsar_spark.wire import pulsar_api_pb2 as pb
from pulsar_spark.wire.commands import TxnAction, decode_command
from pulsar_spark.wire.frames import encode_frame
from pulsar_spark.wire.outgoing import EntryEncoder
from pulsar_spark.wire.protocol import NO_REQUEST
from tests.support import patience
from tests.support.scripted_broker import (
    ScriptedBroker,
    Session,
    client_options,
    numbered,
)
from tests.support.settings import range_settings, reader_settings

if TYPE_CHECKING:
    import socket

    import pytest

TOPIC = "persistent://public/default/t"
PARTITIONS = 2
ENTRIES = 30
PER_ENTRY = 5

#: Share of frames that something happens to.
_RATE = 0.15

#: At most this many frames are sent where one was meant.
_MANY = 30

_Type = pb.BaseCommand.Type
_INTS = (0, 1, 2, 3, 7, 20, -1, 2**31 - 1, -(2**31), 2**32 - 1, 2**63 - 1, -(2**63))
_UNSIGNED = (*_INTS, 2**63, 2**64 - 1)
_TEXTS = (
    "",
    "x",
    "a\nFATAL forged \x1b[2J",
    "x" * 5000,
    "\N{SNOWMAN}" * 300,
    "pulsar://127.0.0.1:1",
    "pulsar+ssl://127.0.0.1:6651",
    "persistent://public/default/t-partition-0",
    "persistent://public/default/\n",
)

#: The body of each reply, by its field in BaseCommand.
_REPLIES = (
    "success",
    "producer_success",
    "lookupTopicResponse",
    "partitionMetadataResponse",
    "getLastMessageIdResponse",
    "getTopicsOfNamespaceResponse",
    "getSchemaResponse",
    "consumerStatsResponse",
    "ackResponse",
    "newTxnResponse",
    "addPartitionToTxnResponse",
    "endTxnResponse",
    "tcClientConnectResponse",
)

#: What a broker may refuse with. That a topic is not there would be a lie.
_CODES = [number for number, name in SERVER_ERRORS.items() if name != "TopicNotFound"]


class CutError(Exception):
    """The connection is to end here."""


class Mutator:
    """Decides what becomes of each frame that a broker sends.

    Args:
        seed: Where all chance comes from.
        lies: Whether frames may be wrong that look right.

    Attributes:
        frames: How many were not what they should have been.
        kinds: What was done, and how often.
    """

    def __init__(self, seed: int, *, lies: bool) -> None:
        self.frames = 0
        self.kinds: dict[str, int] = {}
        self._chance = random.Random(seed)
        self._lock = threading.Lock()
        faults: list[Callable[[HostileSession, bytes], list[bytes]]] = [
            self._again,
            self._late,
            self._lost,
            self._damaged,
            self._short,
            self._pushed,
            self._refused,
            self._garbage,
        ]
        # Some at a time: else each connection would end by the first that is fatal.
        faults = self._chance.sample(faults, 3)
        self._choices = [self._lied] * 20 + [self._flipped] * 3 if lies else faults
        if lies:
            self._choices += [self._another_kind] * 3
            self._choices += [self._again, self._pushed, self._late_any, self._lost_any]
        self._lies = lies

    def pieces(self, session: HostileSession, data: bytes) -> list[bytes]:
        """What is sent instead of a frame.

        Raises:
            CutError: After ``session.held`` the connection ends.
        """
        with self._lock:
            held, session.held = session.held, []
            if self._chance.random() > _RATE:
                return [data, *held]
            action = self._chance.choice(self._choices)
            name = action.__name__.strip("_")
            self.kinds[name] = self.kinds.get(name, 0) + 1
            pieces = action(session, data)
            self.frames += max(1, len(pieces) - 1)
            return [*pieces, *held]

    # -- faults --------------------------------------------------------------------

    def _again(self, session: HostileSession, data: bytes) -> list[bytes]:
        return [data] * self._chance.randint(2, _MANY)

    def _late(self, session: HostileSession, data: bytes) -> list[bytes]:
        """Behind the next frame; entries only come in order."""
        if _is_message(data):
            return self._damaged(session, data)
        session.held.append(data)
        return []

    def _lost(self, session: HostileSession, data: bytes) -> list[bytes]:
        if _is_message(data):
            raise CutError
        return []

    def _damaged(self, session: HostileSession, data: bytes) -> list[bytes]:
        """A bit of an entry flips, or one that ends the stream's meaning."""
        command_end = 8 + struct.unpack_from(">I", data, 4)[0]
        if _is_message(data) and command_end < len(data):
            return [_flip(data, self._chance.randrange(command_end, len(data)))]
        return [_flip(data, self._chance.choice([0, 4]))]

    def _short(self, session: HostileSession, data: bytes) -> list[bytes]:
        session.held.append(data[: self._chance.randrange(len(data))])
        raise CutError

    def _pushed(self, session: HostileSession, data: bytes) -> list[bytes]:
        count = self._chance.randint(1, _MANY)
        return [*(self._push(session) for _ in range(count)), data]

    def _refused(self, session: HostileSession, data: bytes) -> list[bytes]:
        command = _decoded(data)
        request_id = getattr(_body(command), "request_id", None)
        if request_id is None or command.type == _Type.CLOSE_CONSUMER:
            return [self._push(session), data]
        return [self._error(request_id)]

    def _garbage(self, session: HostileSession, data: bytes) -> list[bytes]:
        return [self._chance.randbytes(self._chance.randint(1, 60)), data]

    # -- lies ----------------------------------------------------------------------

    def _lied(self, session: HostileSession, data: bytes) -> list[bytes]:
        """One field of a command has another value, or none."""
        command = _decoded(data)
        places = list(_fields(_body(command)))
        if not places:
            return [data, data]
        message, one = self._chance.choice(places)
        if self._chance.random() < 0.15:
            message.ClearField(one.name)
        else:
            _set(message, one, self._value(one))
        return [_encoded(command, data)]

    def _value(self, one: FieldDescriptor) -> Any:
        if "Url" in one.name and self._chance.random() < 0.2:
            return "pulsar://u:secret@h:1"
        if one.type == one.TYPE_STRING:
            return self._chance.choice(_TEXTS)
        if one.type == one.TYPE_BYTES:
            return self._chance.randbytes(self._chance.randint(0, 20))
        if one.type == one.TYPE_BOOL:
            return self._chance.random() < 0.5
        if one.enum_type is not None:
            return self._chance.choice(one.enum_type.values).number
        return self._chance.choice(_UNSIGNED)

    def _flipped(self, session: HostileSession, data: bytes) -> list[bytes]:
        return [_flip(data, self._chance.randrange(len(data)), self._chance)]

    def _late_any(self, session: HostileSession, data: bytes) -> list[bytes]:
        session.held.append(data)
        return []

    def _lost_any(self, session: HostileSession, data: bytes) -> list[bytes]:
        return []

    def _another_kind(self, session: HostileSession, data: bytes) -> list[bytes]:
        request_id = getattr(_body(_decoded(data)), "request_id", 1)
        return [self._reply(request_id)]

    # -- frames that nobody asked for ----------------------------------------------

    def _push(self, session: HostileSession) -> bytes:
        chance = self._chance
        some_id = chance.randint(1, 30)
        place = pb.MessageIdData(ledgerId=7, entryId=chance.randint(0, 40))
        nobody = 10**6 + some_id
        whose = some_id if self._lies else nobody
        kind = chance.randrange(10)
        if kind == 0:
            one = _command("ping")
        elif kind == 1:
            one = _command("pong")
        elif kind == 2:
            consumers = list(session.consumers) or [nobody]
            consumer_id = chance.choice(
                consumers if chance.random() < 0.1 else [nobody]
            )
            one = _command("close_consumer", consumer_id=consumer_id, request_id=0)
        elif kind == 3:
            one = _command("close_producer", producer_id=nobody, request_id=0)
        elif kind == 4:
            one = _command(
                "send_receipt", producer_id=whose, sequence_id=some_id, message_id=place
            )
        elif kind == 5:
            one = _command(
                "send_error", producer_id=whose, sequence_id=1, error=9, message="no"
            )
        elif kind == 6:
            return self._reply(whose)
        elif kind == 7:
            return self._error(some_id if chance.random() < 0.05 else nobody)
        elif kind == 8:
            one = _command("message", consumer_id=whose, message_id=place)
        else:
            return encode_frame(b"\x08" + bytes([chance.randint(70, 127)]))
        return encode_frame(one.SerializeToString())

    def _reply(self, request_id: int) -> bytes:
        name = self._chance.choice(_REPLIES)
        given: dict[str, Any] = {"request_id": request_id}
        if name == "producer_success":
            given["producer_name"] = "p"
        if name == "getLastMessageIdResponse":
            given["last_message_id"] = pb.MessageIdData(ledgerId=7, entryId=1)
        if name == "ackResponse":
            given["consumer_id"] = 1
        return encode_frame(_command(name, **given).SerializeToString())

    def _error(self, request_id: int) -> bytes:
        if self._chance.random() < 0.02:
            request_id = NO_REQUEST
        error = _command(
            "error",
            request_id=request_id,
            error=self._chance.choice(_CODES),
            message=self._chance.choice(_TEXTS),
        )
        return encode_frame(error.SerializeToString())


def _command(name: str, **given: Any) -> pb.BaseCommand:
    number = pb.BaseCommand.DESCRIPTOR.fields_by_name[name].number
    command = pb.BaseCommand(type=_Type.ValueType(number))
    body = getattr(command, name)
    body.SetInParent()
    for key, value in given.items():
        if hasattr(value, "DESCRIPTOR"):
            getattr(body, key).CopyFrom(value)
        else:
            setattr(body, key, value)
    return command


def _decoded(data: bytes) -> pb.BaseCommand:
    size = struct.unpack_from(">I", data, 4)[0]
    return decode_command(data[8 : 8 + size])


def _encoded(command: pb.BaseCommand, data: bytes) -> bytes:
    """The frame with another command, and with what stood behind it."""
    behind = data[8 + struct.unpack_from(">I", data, 4)[0] :]
    part = command.SerializePartialToString()
    return struct.pack(">II", 4 + len(part) + len(behind), len(part)) + part + behind


def _is_message(data: bytes) -> bool:
    return _decoded(data).type == _Type.MESSAGE


def _body(command: pb.BaseCommand) -> Any:
    return getattr(
        command, pb.BaseCommand.DESCRIPTOR.fields_by_number[command.type].name
    )


def _fields(message: Any) -> Iterator[tuple[Any, FieldDescriptor]]:
    """Every field that could be set, with the message it belongs to."""
    for one in message.DESCRIPTOR.fields:
        if one.message_type is None:
            yield message, one
        elif not _is_repeated(message, one) and message.HasField(one.name):
            yield from _fields(getattr(message, one.name))


def _is_repeated(message: Any, one: FieldDescriptor) -> bool:
    return hasattr(getattr(message, one.name), "append")


def _set(message: Any, one: FieldDescriptor, value: Any) -> None:
    """Sets a field, to the nearest that it can hold."""
    if _is_repeated(message, one):
        with contextlib.suppress(ValueError):
            getattr(message, one.name).append(value)
        return
    try:
        setattr(message, one.name, value)
    except ValueError:
        setattr(message, one.name, 1)


def _flip(data: bytes, at: int, chance: random.Random | None = None) -> bytes:
    bit = 1 << chance.randrange(8) if chance else 0x40
    return data[:at] + bytes([data[at] ^ bit]) + data[at + 1 :]


@dataclass(eq=False)
class HostileSession(Session):
    """A connection whose frames pass through a mutator.

    Attributes:
        mutator: What decides.
        held: Frames that are to come behind the next one.
    """

    mutator: Mutator | None = None
    held: list[bytes] = field(default_factory=list)

    def send_bytes(self, data: bytes) -> None:
        """Sends what becomes of a frame."""
        if self.is_muted or self.mutator is None:
            return
        try:
            for piece in self.mutator.pieces(self, data):
                super().send_bytes(piece)
        except CutError:
            for piece in self.held:
                super().send_bytes(piece)
            self.cut()


class HostileBroker(ScriptedBroker):
    """A scripted broker behind a mutator.

    Args:
        mutator: What decides what becomes of its frames.
    """

    def __init__(self, mutator: Mutator) -> None:
        self._mutator = mutator
        super().__init__()

    def new_session(self, sock: socket.socket) -> Session:
        """One whose frames pass through the mutator."""
        return HostileSession(sock, mutator=self._mutator)

    def answer(self, session: Session, command: pb.BaseCommand) -> None:
        """Hangs up where a client that was lied to asks for the impossible."""
        try:
            super().answer(session, command)
        except (LookupError, AssertionError, ValueError, TypeError):
            self.hang_up(session)


# -- conversations -----------------------------------------------------------------

Conversation = Callable[["Talk"], None]


@dataclass
class Talk:
    """What a conversation has to work with.

    Attributes:
        broker: Whom it is with.
        pool: Connections there.
        is_honest: Whether what comes out must be right.
        chance: More of the seed.
    """

    broker: HostileBroker
    pool: ConnectionPool
    is_honest: bool
    chance: random.Random


def read(talk: Talk) -> None:
    """Plans a batch read, and reads it."""
    options = _options(talk)
    payloads: dict[str, list[bytes]] = {}
    for task in plan_batch(talk.pool, options):
        (range_,) = task.ranges
        name = range_.topic_partition
        settings = range_settings(
            reader_settings(receiver_queue_messages=40, poll_timeout_s=0.3)
        )
        some = payloads.setdefault(name, [])
        served_by = task.brokers.get(name)
        reader = RangeReader(talk.pool, range_, settings, served_by=served_by)
        for entry in reader.entries():
            some += [bytes(payload or b"") for payload in entry.payloads]
    if talk.is_honest:
        stored = {name: _values(talk, name) for name in talk.broker.topics}
        assert payloads == {name: values for name, values in stored.items() if values}


def _options(talk: Talk, **more: Any) -> ReadOptions:
    if talk.chance.random() < 0.3:
        more["topics_pattern"] = compile_topics_pattern("public/default/t.*")
    else:
        more["topics"] = (TopicName.parse(TOPIC),)
    return ReadOptions(client=talk.pool.options, poll_timeout_s=0.3, **more)


def _values(talk: Talk, name: str) -> list[bytes]:
    values = []
    for entry in talk.broker.topics[name]:
        data = entry.payload
        while data:
            (head,) = struct.unpack_from(">I", data)
            single = pb.SingleMessageMetadata.FromString(data[4 : 4 + head])
            end = 4 + head + single.payload_size
            values.append(data[4 + head : end])
            data = data[end:]
    return values


def write(talk: Talk) -> None:
    """Sends rows, and waits until they are stored."""
    names = [f"{TOPIC}-out-{number}" for number in range(2)]
    narrow = ConnectionPool(replace(talk.pool.options, memory_limit_bytes=2000))
    all_producers = Producers(narrow, ProducerSettings(send_timeout_s=0.5))
    sent: dict[str, list[bytes]] = {name: [] for name in names}
    try:
        all_producers.open(names)
        for number in range(40):
            name = names[number % 2]
            producer = all_producers.get(name)
            encoder = EntryEncoder(
                producer.producer_id,
                producer.registration.name,
                producer.registration.max_message_size_bytes,
            )
            for frame in encoder.single(
                pb.MessageMetadata(), b"%d" % number, number // 2, 1
            ):
                all_producers.send(producer, frame)
            sent[name].append(b"%d" % number)
        all_producers.flush()
    finally:
        all_producers.close()
        narrow.close()
    if talk.is_honest:
        for name, values in sent.items():
            stored = [entry.payload for entry in talk.broker.topics[name]]
            assert list(dict.fromkeys(stored)) == values


def stream(talk: Talk) -> None:
    """Plans micro-batches, with limits or without, and commits them."""
    limit = talk.chance.choice([None, 40])
    planner = stream_planner(talk.pool, _options(talk, max_rows_per_trigger=limit))
    try:
        offset = planner.initial()
        for _ in range(3):
            end = planner.latest(offset)
            planner.ranges(offset, end)
            planner.commit(end)
            planner.progress()
            offset = end
    finally:
        planner.stop()


def transact(talk: Talk) -> None:
    """Begins transactions, extends them and ends them."""
    client = TransactionClient(talk.pool)
    txns = [client.begin(60_000) for _ in range(4)]
    for txn in txns:
        client.add_partitions(txn, [f"{TOPIC}-partition-0"])
    outcomes = client.end(txns, TxnAction.COMMIT)
    for error in outcomes.values():
        if error is not None:
            raise error
    if talk.is_honest:
        assert {txn for txn, _ in talk.broker.ended} >= set(txns)


def keep_log(talk: Talk) -> None:
    """Appends to a journal, reads it, and forgets its beginning."""
    log = Journal(talk.pool, f"{TOPIC}-log")
    for number in range(4):
        log.append(b"%d" % number)
    found = log.read()
    if found:
        log.forget(found[0][0])
    rest = log.read()
    if talk.is_honest:
        values = [b"0", b"1", b"2", b"3"]
        assert list(dict.fromkeys(value for _, value in found)) == values
        assert {value for _, value in rest} >= set(values[1:])


CONVERSATIONS: tuple[Conversation, ...] = (
    read,
    read,
    read,
    write,
    stream,
    transact,
    keep_log,
)


def converse(seed: int) -> tuple[Mutator, Conversation, Callable[[], None]]:
    """A conversation that follows from a seed: who decides, what, and how to hold it.

    The last one raises what the client raises, or an AssertionError for a result that
    is wrong.
    """
    chance = random.Random(seed)
    is_honest = chance.random() < 0.5
    mutator = Mutator(seed, lies=not is_honest)
    conversation = chance.choice(CONVERSATIONS)

    def hold() -> None:
        with HostileBroker(mutator) as broker:
            broker.partitions[TOPIC] = PARTITIONS
            broker.partitions[COORDINATORS] = 2
            for number in range(PARTITIONS):
                name = f"{TOPIC}-partition-{number}"
                broker.add_topic(name, numbered(ENTRIES, PER_ENTRY))
            options = client_options(
                broker.address,
                operation_timeout_s=0.25,
                connection_timeout_s=0.25,
                lookup_timeout_s=0.25,
                keep_alive_interval_s=0.15,
                initial_backoff_s=0.001,
                max_backoff_s=0.01,
            )
            pool = ConnectionPool(options)
            try:
                conversation(Talk(broker, pool, is_honest, chance))
            finally:
                pool.close()

    return mutator, conversation, hold


def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes all waits short that options do not."""
    patience.usual(
        monkeypatch,
        tick_s=0.05,
        silence_s=0.03,
        proof_s=0.05,
        close_s=0.05,
        delete_s=0.05,
        look_s=0.05,
        acknowledge_s=0.05,
        forget_s=0.0,
        write_s=0.5,
        write_tick_s=0.02,
    )
    hasty = partial(ProducerSettings, send_timeout_s=0.5)
    monkeypatch.setattr(journal, "ProducerSettings", hasty)
