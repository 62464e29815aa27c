# SPDX-License-Identifier: Apache-2.0
"""Ranges with encrypted entries, on the scripted broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pulsar_spark.client.pool import ConnectionPool
from pulsar_spark.encryption.encryptor import Encryptor
from pulsar_spark.encryption.keys import public_keys
from pulsar_spark.errors import EncryptionError
from pulsar_spark.message_id import MessageId
from pulsar_spark.options.encryption import DecryptionOptions, KeyPlaces
from pulsar_spark.options.secret import Secret
from pulsar_spark.source.plan.ranges import TopicRange
from pulsar_spark.source.read.opener import Opener
from pulsar_spark.source.read.range_reader import RangeReader
from pulsar_spark.wire import pulsar_api_pb2 as pb
from tests.support.key_pairs import rsa_pair
from tests.support.scripted_broker import (
    LEDGER,
    ScriptedBroker,
    StoredFrame,
    batch,
    client_options,
    single,
)
from tests.support.settings import range_settings, reader_settings

if TYPE_CHECKING:
    from collections.abc import Iterator

TOPIC = "persistent://public/default/t"
OURS = KeyPlaces((("k", Secret(rsa_pair().private)),))
ENCRYPTOR = Encryptor(public_keys({"k": Secret(rsa_pair().public)}))


def encrypted(frame: StoredFrame) -> StoredFrame:
    """The same entry, encrypted."""
    fields, payload = ENCRYPTOR.encrypt(frame.payload)
    metadata = pb.MessageMetadata()
    metadata.CopyFrom(frame.metadata)
    metadata.MergeFromString(fields)
    return StoredFrame(metadata, payload, frame.messages)


def chunks(value: bytes, count: int, uuid: str) -> list[StoredFrame]:
    """A message in pieces that are not encrypted."""
    size = -(-len(value) // count)
    return [
        single(
            value[index * size : (index + 1) * size],
            uuid=uuid,
            chunk_id=index,
            num_chunks_from_msg=count,
            total_chunk_msg_size=len(value),
        )
        for index in range(count)
    ]


@pytest.fixture
def read(scripted: ScriptedBroker) -> Iterator[Any]:
    """Reads a range of TOPIC: its values, and what has opened them."""
    with ConnectionPool(client_options(scripted.address)) as pool:

        def values(
            first: int,
            last: int,
            keys: KeyPlaces | None = None,
            action: str = "FAIL",
            is_required: bool = False,
            **opener: Any,
        ) -> tuple[list[bytes | None], Opener]:
            given = range_settings(reader_settings())
            one = Opener(DecryptionOptions(keys, action, is_required), **opener)
            range_ = TopicRange(
                TOPIC, MessageId(LEDGER, first), MessageId(LEDGER, last)
            )
            reader = RangeReader(pool, range_, given, opener=one)
            found = [v for entry in reader.entries() for v in entry.payloads]
            return found, one

        yield values


def test_among_others(
    scripted: ScriptedBroker, read: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Batches and single messages, encrypted or not, in their order."""
    entries = [
        single(b"open"),
        encrypted(batch([b"a", b"b", b"c"])),
        encrypted(single(b"one", partition_key="k")),
        batch([b"d", b"e"]),
        encrypted(single(b"", null_value=True)),
    ]
    scripted.add_topic(TOPIC, entries)
    all_of_them = [b"open", b"a", b"b", b"c", b"one", b"d", b"e", None]
    assert read(0, 4, OURS)[0] == all_of_them
    with pytest.raises(EncryptionError, match=f"Message {LEDGER}:1 of {TOPIC}"):
        read(0, 4)
    caplog.clear()
    found, opener = read(0, 4, None, "DISCARD")
    assert found == [b"open", b"d", b"e"]
    assert opener.discarded == 5
    assert caplog.text.count("left out") <= 1, "once in a process"
    found, opener = read(0, 4, None, "CONSUME")
    sealed = [entry.payload for entry in entries]
    assert found == [b"open", *sealed[1:3], b"d", b"e", sealed[4]]
    assert opener.discarded == 0


def test_messages_that_must_be_encrypted(scripted: ScriptedBroker, read: Any) -> None:
    """Plain ones fail or are left out: alone, in batches, as chunks of others."""
    large, secret = b"0123456789" * 3, b"abcdefghij" * 3
    entries = [
        encrypted(single(b"a")),
        single(b"plain"),
        batch([b"plain", b"plain"]),
        encrypted(batch([b"b", b"c"])),
        *chunks(large, 3, "plain"),
        *map(encrypted, chunks(secret, 3, "secret")),
        encrypted(chunks(secret, 2, "mixed")[0]),
        chunks(secret, 2, "mixed")[1],
        encrypted(single(b"", null_value=True)),
        single(b"", null_value=True),
        encrypted(single(b"d")),
    ]
    scripted.add_topic(TOPIC, entries)
    for plain in (1, 2, 4, 11, 13):
        with pytest.raises(EncryptionError, match=r"it is not encrypted\..*required"):
            read(plain, plain, OURS, is_required=True)
    found, opener = read(0, len(entries) - 1, OURS, "DISCARD", is_required=True)
    assert found == [b"a", b"b", b"c", secret, None, b"d"]
    assert opener.discarded == 1 + 2 + 1 + 1 + 1
    assert len(read(0, len(entries) - 1, OURS)[0]) == 12


def test_a_range_may_end_in_what_is_left_out(
    scripted: ScriptedBroker, read: Any
) -> None:
    """It ends all the same, and nothing of it is lost."""
    scripted.add_topic(TOPIC, [encrypted(single(b"hidden"))] * 3)
    found, opener = read(0, 2, None, "DISCARD")
    assert found == []
    assert opener.discarded == 3


def test_rows_of_a_schema_are_not_made_of_encrypted_bytes(
    scripted: ScriptedBroker, read: Any
) -> None:
    """CONSUME fails then, and says how to read the bytes."""
    scripted.add_topic(TOPIC, [encrypted(single(b"hidden"))])
    with pytest.raises(EncryptionError, match="allowDifferentTopicSchemas"):
        read(0, 0, None, "CONSUME", gives_bytes=False)


@pytest.mark.parametrize("hidden", [[0, 1, 2], [0], [1], [2], [0, 1], [1, 2]])
def test_chunks_of_which_some_are_encrypted(
    scripted: ScriptedBroker, read: Any, hidden: list[int]
) -> None:
    """With the key it is one message; without, it is left out whole, or fails."""
    pieces = chunks(b"some value in three", 3, "u")
    entries = [encrypted(p) if n in hidden else p for n, p in enumerate(pieces)]
    scripted.add_topic(TOPIC, [single(b"x"), *entries, single(b"y")])
    assert read(0, 4, OURS)[0] == [b"x", b"some value in three", b"y"]
    assert read(3, 4, OURS)[0] == [b"some value in three", b"y"]
    for first in (0, 3):
        with pytest.raises(
            EncryptionError, match=f"Message {LEDGER}:{1 + hidden[0]}|:3"
        ):
            read(first, 4)
        found, opener = read(first, 4, None, "DISCARD")
        assert found == [b"x", b"y"][first > 0 :]
        assert opener.discarded == 1


def test_consumed_chunks_are_rows(scripted: ScriptedBroker, read: Any) -> None:
    """Each is encrypted by itself: together they are of no use."""
    entries = [encrypted(piece) for piece in chunks(b"some value", 3, "u")]
    scripted.add_topic(TOPIC, entries)
    found, _ = read(0, 2, None, "CONSUME")
    assert found == [entry.payload for entry in entries]


def test_an_encrypted_entry_ahead_of_the_range_is_nobodys(
    scripted: ScriptedBroker, read: Any
) -> None:
    """It is only stored between the chunks of the first message."""
    first, *rest = chunks(b"value", 2, "u")
    scripted.add_topic(TOPIC, [first, encrypted(single(b"other")), *rest])
    assert read(2, 2)[0] == [b"value"]


def test_large_metadata_have_many_keys(scripted: ScriptedBroker, read: Any) -> None:
    """Beside many properties the key that opens it may be the last of a hundred."""
    entry = encrypted(single(b"v"))
    own = entry.metadata.encryption_keys.pop()
    for number in range(99):
        entry.metadata.encryption_keys.add(key=f"x{number}", value=bytes(256))
    entry.metadata.encryption_keys.append(own)
    entry.metadata.properties.add(key="p", value="v" * 20_000)
    scripted.add_topic(TOPIC, [entry])
    assert read(0, 0, OURS)[0] == [b"v"]


def test_a_million_keys_are_one_error(scripted: ScriptedBroker, read: Any) -> None:
    """As many as fit into an entry are no more work than those that are looked at."""
    entry = encrypted(single(b"v"))
    del entry.metadata.encryption_keys[:]
    key = entry.metadata.encryption_keys.add(key="k", value=b"x")
    entry.metadata.encryption_keys.extend([key] * 500_000)
    scripted.add_topic(TOPIC, [entry])
    with pytest.raises(EncryptionError, match="no key of"):
        read(0, 0, OURS)


def test_a_marker_is_passed_over(scripted: ScriptedBroker, read: Any) -> None:
    """Also one that says it is encrypted: nobody needs what it holds."""
    scripted.add_topic(TOPIC, [encrypted(single(b"", marker_type=99)), single(b"v")])
    assert read(0, 1)[0] == [b"v"]
