# SPDX-License-Identifier: Apache-2.0
"""Payloads that come with the data key for some, whatever they come with."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pulsar_spark.encryption import decryptor
from pulsar_spark.encryption.decryptor import Decryptor
from pulsar_spark.encryption.encryptor import Encryptor
from pulsar_spark.encryption.keys import UnwrapError, public_keys
from pulsar_spark.errors import EncryptionError, OptionError
from pulsar_spark.options.encryption import KeyPlaces
from pulsar_spark.options.secret import Secret
from pulsar_spark.wire import pulsar_api_pb2 as pb
from tests.support.fixtures import files_rest as files_rest
from tests.support.key_pairs import ec_pair, rsa_pair

OURS, THEIRS = rsa_pair(), ec_pair()


def encryptor(**names: str) -> Encryptor:
    """Encrypts for these names with these public keys."""
    return Encryptor(public_keys({n: Secret(pem) for n, pem in names.items()}))


def closed(payload: bytes, **names: str) -> tuple[pb.MessageMetadata, bytes]:
    """A payload for these, and what metadata say of it."""
    fields, body = encryptor(**names).encrypt(payload)
    return pb.MessageMetadata.FromString(b"\x0a\x01p\x10\x00\x18\x00" + fields), body


def with_keys(**names: str) -> Decryptor:
    """Has these private keys."""
    return Decryptor(KeyPlaces(tuple((n, Secret(pem)) for n, pem in names.items())))


def test_any_one_key_is_enough() -> None:
    """Whoever else the message is for."""
    metadata, body = closed(b"v", a=rsa_pair(1).public, b=OURS.public, c=THEIRS.public)
    for one in (with_keys(b=OURS.private), with_keys(x=OURS.private, c=THEIRS.private)):
        assert one.decrypt(metadata, memoryview(body)) == b"v"
    everyone = Decryptor(KeyPlaces((), Secret(OURS.private)))
    assert everyone.decrypt(metadata, body) == b"v"


def test_a_data_key_is_opened_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether it is of use or not; and a private key is read once."""
    opened = []

    class Counting:
        def unwrap(self, wrapped: bytes) -> bytes:
            opened.append(wrapped)
            if wrapped == b"bad":
                raise UnwrapError
            return bytes(32)

    loaded = []

    def load(place: Secret, name: str) -> Counting:
        loaded.append(name)
        return Counting()

    monkeypatch.setattr(decryptor, "private_key", load)
    one = Decryptor(KeyPlaces((), Secret("env:K")))
    for wrapped in (b"bad", b"good") * 20:
        key = pb.EncryptionKeys(key="k", value=wrapped)
        with pytest.raises(EncryptionError):
            one.decrypt(pb.MessageMetadata(encryption_keys=[key]), bytes(20))
    assert opened == [b"bad", b"good"]
    assert loaded == ["k"]


def test_a_file_that_has_changed(tmp_path: Path) -> None:
    """It is read again for what no key opens; what it had before is kept, too."""
    file = tmp_path / "key"
    file.write_text(OURS.private)
    one = Decryptor(KeyPlaces((), Secret(f"file:{file}")))
    for_old, for_new = (closed(b"v", k=p.public) for p in (OURS, rsa_pair(1)))
    again = closed(b"v", k=OURS.public)
    assert one.decrypt(*for_old) == b"v"
    for _ in range(2):
        with pytest.raises(EncryptionError, match="no key of"):
            one.decrypt(*for_new)
    (tmp_path / "new").write_text(rsa_pair(1).private)
    (tmp_path / "new").replace(file)
    assert one.decrypt(*for_new) == b"v", "also what it did not open before"
    assert one.decrypt(*again) == b"v", "a data key that is new, for the old key"
    file.unlink()
    assert one.decrypt(*for_old) == b"v", "nothing is asked of it"
    with pytest.raises(OptionError, match="cannot be read"):
        one.decrypt(*closed(b"v", k=rsa_pair(2).public))


@pytest.mark.usefixtures("files_rest")
def test_the_same_key_written_again_takes_no_place(tmp_path: Path) -> None:
    """As agents do that renew files by the hour: older keys stay."""
    file, stranger = tmp_path / "key", rsa_pair(3)
    for older, newer in ((OURS, rsa_pair(1)), (THEIRS, OURS), (OURS, THEIRS)):
        file.write_text(older.private)
        one = Decryptor(KeyPlaces((), Secret(f"file:{file}")))
        assert one.decrypt(*closed(b"v", k=older.public)) == b"v"
        for turn in range(6):
            file.write_text(f"{newer.private}{turn * chr(10)}")
            with pytest.raises(EncryptionError):
                one.decrypt(*closed(b"v", k=stranger.public))
        for pair in (older, newer):
            assert one.decrypt(*closed(b"v", k=pair.public)) == b"v"


@pytest.mark.usefixtures("files_rest")
def test_keys_of_the_past_are_bounded(tmp_path: Path) -> None:
    """The latest ones are kept."""
    file, pairs = tmp_path / "key", [rsa_pair(n) for n in range(5)]
    one = Decryptor(KeyPlaces((), Secret(f"file:{file}")))
    for pair in pairs:
        file.write_text(pair.private)
        assert one.decrypt(*closed(b"v", k=pair.public)) == b"v"
    for pair in pairs[1:]:
        assert one.decrypt(*closed(b"v", k=pair.public)) == b"v"
    with pytest.raises(EncryptionError):
        one.decrypt(*closed(b"v", k=pairs[0].public))


def test_a_flood_of_data_keys_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """An entry has a few tries, and all together some more, and a cache of a size."""
    tries = []

    class Counting:
        def unwrap(self, wrapped: bytes) -> bytes:
            tries.append(wrapped)
            raise UnwrapError

    monkeypatch.setattr(decryptor, "private_key", lambda *_: Counting())
    one = Decryptor(KeyPlaces((), Secret("env:K")))
    for entry in range(80):
        keys = [
            pb.EncryptionKeys(key="k", value=b"%d-%d" % (entry, number))
            for number in range(200)
        ]
        keys.append(pb.EncryptionKeys(key="k", value=bytes(1 << 20)))
        with pytest.raises(EncryptionError, match="no key of"):
            one.decrypt(pb.MessageMetadata(encryption_keys=keys), bytes(20))
    assert len(tries) == 80 * 16 + 1000
    assert len(one._data_keys) <= 1024


def test_many_recipients() -> None:
    """Whichever of them has the key, and however many messages there are."""
    pairs = [rsa_pair(number, 1024) for number in range(4)]
    others = {f"k{number:02}": pairs[number % 4].public for number in range(99)}
    ours = rsa_pair(4, 1024)
    one = Decryptor(KeyPlaces((), Secret(ours.private)))
    for _ in range(15):
        assert one.decrypt(*closed(b"v", **others, ours=ours.public)) == b"v"


def test_errors_tell_names_and_nothing_else() -> None:
    """Those who sent it chose the names: a few of them, and shortened."""
    names = [f"k{n}" * 100 + "\n" for n in range(10)]
    keys = [pb.EncryptionKeys(key=name, value=b"") for name in names]
    metadata = pb.MessageMetadata(encryption_keys=keys)
    with pytest.raises(EncryptionError, match="has no key") as raised:
        Decryptor(None).decrypt(metadata, b"")
    assert len(raised.value.message) < 500
    assert "and others" in raised.value.message
    assert "\n" not in raised.value.message


def test_whatever_is_wrong_it_is_the_same_error() -> None:
    """A wrong private key, and damage anywhere, cannot be told from each other."""
    metadata, body = closed(b"payload", k=OURS.public)
    said = set()
    for place in ("value", "nonce", "body", "short", "key", "long nonce"):
        given = pb.MessageMetadata()
        given.CopyFrom(metadata)
        data, pair = bytearray(body), OURS
        if place == "value":
            value = bytearray(given.encryption_keys[0].value)
            value[9] ^= 1
            given.encryption_keys[0].value = bytes(value)
        elif place == "nonce":
            given.encryption_param = b"x" * 12
        elif place == "long nonce":
            given.encryption_param = b"x" * 1000
        elif place == "body":
            data[3] ^= 1
        elif place == "short":
            del data[3:]
        else:
            pair = rsa_pair(1)
        with pytest.raises(EncryptionError) as raised:
            with_keys(k=pair.private).decrypt(given, bytes(data))
        assert raised.value.__cause__ is None
        said.add(raised.value.reason)
    assert len(said) == 1


ONE = with_keys(k=OURS.private, e=THEIRS.private)


@settings(max_examples=200, deadline=None)
@given(
    keys=st.lists(
        st.tuples(st.sampled_from(["k", "e", "x"]), st.binary(max_size=300)), max_size=4
    ),
    nonce=st.binary(max_size=20),
    payload=st.binary(max_size=50),
)
def test_any_metadata(
    keys: list[tuple[str, bytes]], nonce: bytes, payload: bytes
) -> None:
    """They lead to the one error, and nothing else."""
    metadata = pb.MessageMetadata(
        encryption_keys=[pb.EncryptionKeys(key=n, value=v) for n, v in keys],
        encryption_param=nonce,
    )
    with pytest.raises(EncryptionError):
        ONE.decrypt(metadata, payload)


def test_damaged_entries_never_give_rows() -> None:
    """Any bit of the payload that is another: it is no payload."""
    metadata, body = closed(b"some payload", k=OURS.public)
    one = with_keys(k=OURS.private)
    dice = random.Random(1)
    for _ in range(200):
        data = bytearray(body)
        data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
        with pytest.raises(EncryptionError):
            one.decrypt(metadata, bytes(data))
    assert one.decrypt(metadata, body) == b"some payload"
