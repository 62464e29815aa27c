# SPDX-License-Identifier: Apache-2.0
"""Payloads are encrypted with data keys that change."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from pulsar_spark.encryption.encryptor import Encryptor, encryptors
from pulsar_spark.encryption.keys import public_keys
from pulsar_spark.errors import OptionError
from pulsar_spark.options.encryption import EncryptionOptions, KeyPlaces
from pulsar_spark.options.secret import Secret
from pulsar_spark.wire import pulsar_api_pb2 as pb
from spark_topics.client import settling
from tests.encryption.test_decryptor import with_keys
from tests.support.fixtures import FileClock
from tests.support.key_pairs import ec_pair, rsa_pair

if TYPE_CHECKING:
    from pathlib import Path

PLACES = KeyPlaces((("a", Secret(rsa_pair().public)), ("b", Secret(ec_pair().public))))


def described(fields: bytes) -> pb.MessageMetadata:
    """What metadata say with these fields."""
    return pb.MessageMetadata.FromString(b"\x0a\x01p\x10\x00\x18\x00" + fields)


def test_what_is_said_of_a_payload() -> None:
    """Each recipient's key, and bytes that are never the same; no name of a cipher."""
    made = encryptors(EncryptionOptions(("a", "b"), PLACES), print)
    assert made is not None
    one = made()
    fields, body = one.encrypt(b"payload")
    again, other = one.encrypt(b"payload")
    first, second = described(fields), described(again)
    assert [key.key for key in first.encryption_keys] == ["a", "b"]
    assert first.encryption_keys == second.encryption_keys
    assert first.encryption_param != second.encryption_param
    assert body != other
    assert not first.HasField("encryption_algo")
    assert len(fields) + len(body) == len(b"payload") + one.overhead_bytes
    assert described(made().encrypt(b"")[0]).encryption_keys != first.encryption_keys
    for reader in (with_keys(a=rsa_pair().private), with_keys(b=ec_pair().private)):
        assert reader.decrypt(first, body) == b"payload"


def test_a_data_key_is_renewed() -> None:
    """After four hours, and not before."""
    now = [0.0]
    keys = public_keys({"k": Secret(rsa_pair().public)})
    one = Encryptor(keys, lambda: now[0])
    reader = with_keys(k=rsa_pair().private)
    seen = []
    for now[0] in (0.0, 14_399.0, 14_400.0, 28_799.0, 28_800.0):
        fields, body = one.encrypt(b"v")
        metadata = described(fields)
        assert reader.decrypt(metadata, body) == b"v"
        seen.append(metadata.encryption_keys[0].value)
    assert [seen.index(value) for value in seen] == [0, 0, 2, 2, 4]


def test_nothing_to_encrypt() -> None:
    """Without names there is nothing to make."""
    assert encryptors(EncryptionOptions(), print) is None


@pytest.mark.parametrize("place", ["file:/no/such.pem", "data:,hush"])
def test_a_key_that_cannot_be_used(place: str) -> None:
    """It fails; or rows are sent as they are, with a warning that says why."""
    places = KeyPlaces((), Secret(place))
    with pytest.raises(OptionError):
        encryptors(EncryptionOptions(("k",), places), print)
    said: list[str] = []
    assert encryptors(EncryptionOptions(("k",), places, "SEND"), said.append) is None
    (line,) = said
    assert "NOT encrypted" in line
    assert "hush" not in line


def test_a_key_that_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows are not sent as they are because the file is gone for a moment."""
    file = tmp_path / "k.pem"
    clock = FileClock(then=lambda: file.write_text(rsa_pair().public))
    monkeypatch.setattr(settling, "time", clock)
    places = KeyPlaces((), Secret(f"file:{file}"))
    assert encryptors(EncryptionOptions(("k",), places, "SEND"), pytest.fail)


def test_many_keys_that_have_just_been_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are waited for together: tasks of any micro-batch would wait for each."""
    pairs = [rsa_pair().save(tmp_path, str(n)) for n in range(6)]
    places = [(str(n), Secret(f"file:{pair.public}")) for n, pair in enumerate(pairs)]
    keys = EncryptionOptions(tuple("012345"), KeyPlaces(tuple(places)))
    clock = FileClock()
    monkeypatch.setattr(settling, "time", clock)
    assert encryptors(keys, pytest.fail)
    assert 0.5 <= sum(clock.pauses) <= 0.7


@pytest.mark.parametrize("action", ["FAIL", "SEND"])
def test_a_key_that_is_written_all_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, action: str
) -> None:
    """Rows are not sent as they are: the key can be used soon."""
    file = rsa_pair().save(tmp_path, "k").public

    class Writer(FileClock):
        """The file is written in each pause."""

        def sleep(self, seconds: float) -> None:
            super().sleep(seconds)
            os.utime(file, (self.now, self.now))

    monkeypatch.setattr(settling, "time", Writer())
    keys = EncryptionOptions(("k",), KeyPlaces((), Secret(f"file:{file}")), action)
    with pytest.raises(OptionError, match=r"k-public\.pem.*written to all the time"):
        encryptors(keys, pytest.fail)
