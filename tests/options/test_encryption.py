# SPDX-License-Identifier: Apache-2.0
"""The options of encrypted messages."""

from __future__ import annotations

import json
import pickle
import re
from typing import TYPE_CHECKING

import pytest

from pulsar_spark.errors import OptionError
from pulsar_spark.options import parse_read_options, parse_write_options
from pulsar_spark.options.encryption import DecryptionOptions, KeyPlaces
from pulsar_spark.options.secret import Secret

if TYPE_CHECKING:
    from pulsar_spark.options.encryption import EncryptionOptions

BASE = {"service.url": "pulsar://h", "topic": "t"}
PEM = "-----BEGIN PRIVATE KEY-----\nMIIE\n-----END PRIVATE KEY-----\n"


def read(options: dict[str, str]) -> DecryptionOptions:
    """What a read makes of its options."""
    return parse_read_options(BASE | options).decryption


def write(options: dict[str, str]) -> EncryptionOptions:
    """What a write makes of its options."""
    return parse_write_options(BASE | options, streaming=False).encryption


def test_defaults() -> None:
    """Nothing is encrypted, and what is fails."""
    assert read({}) == DecryptionOptions(None, "FAIL")
    encryption = write({})
    assert (encryption.keys, encryption.public_keys) == (None, None)
    assert encryption.failure_action == "FAIL"


@pytest.mark.parametrize(
    "place", ["file:/k.pem", "env:KEY", "data:application/x-pem-file;base64,AAAA", PEM]
)
def test_places_of_keys(place: str) -> None:
    """A key by name, or one for all names; each in all the ways of a secret."""
    one = KeyPlaces((), Secret(place.strip()))
    assert read({"encryption.privateKeys": place}).private_keys == one
    found = read({"Encryption.PrivateKeys": json.dumps({"a": place, "b": "env:B"})})
    assert found.private_keys is not None
    assert found.private_keys.of("a") == Secret(place.strip())
    assert found.private_keys.of("b") == Secret("env:B")
    assert found.private_keys.of("c") is None
    assert one.of("c") == Secret(place.strip())
    encryption = write({"encryption.keys": " a ,c,a", "encryption.publicKeys": place})
    assert encryption.keys == ("a", "c")
    assert encryption.public_keys == one


@pytest.mark.parametrize(
    "text",
    [
        "hush-hush",
        "/path/hush.pem",
        "file:hush/relative.pem",
        '{"a": "hush"}',
        '{"a": 1, "hush": 2}',
        '{"a": "env:HUSH", "a": "file:/hush"}',
        '["hush"]',
        "{hush",
        "env:",
    ],
)
def test_what_is_no_place(text: str) -> None:
    """An error that shows nothing of it."""
    with pytest.raises(OptionError, match=r"encryption\.privateKeys") as raised:
        read({"encryption.privateKeys": text})
    assert "hush" not in str(raised.value)


@pytest.mark.parametrize("key", [PEM, f"a,{PEM}", "data:text/plain;base64,TUlJRQ=="])
def test_a_key_in_the_place_of_its_name(key: str) -> None:
    """It is not shown: it may be the private one."""
    reversed_ = json.dumps({key: "orders"})
    places = json.dumps({"orders": "file:/k.pem"})
    for option, options in (
        ("encryption.keys", {"encryption.publicKeys": places, "encryption.keys": key}),
        (
            "encryption.publicKeys",
            {"encryption.keys": "orders", "encryption.publicKeys": reversed_},
        ),
    ):
        with pytest.raises(OptionError, match=f"{option} has a key where") as caught:
            write(options)
        assert not {"MIIE", "TUlJRQ"} & set(re.findall(r"\w+", str(caught.value)))
    with pytest.raises(OptionError) as caught:
        read({"encryption.privateKeys": reversed_})
    assert not {"MIIE", "TUlJRQ"} & set(re.findall(r"\w+", str(caught.value)))


def test_names_may_look_like_anything_else() -> None:
    """Whatever other clients have given them."""
    names = ("metadata:1", "data:x", "b")
    encryption = write(
        {"encryption.keys": ",".join(names), "encryption.publicKeys": "env:K"}
    )
    assert encryption.keys == names


def test_keys_are_not_shown() -> None:
    """Neither in text of options nor in that of what holds them."""
    options = parse_read_options(BASE | {"encryption.privateKeys": PEM})
    again = pickle.loads(pickle.dumps(options))  # noqa: S301 - as Spark does
    assert again == options
    assert "MIIE" not in repr(options) + str(again.decryption)


@pytest.mark.parametrize(
    "name", ["pulsar.reader.cryptoFailureAction", "cryptoFailureAction"]
)
@pytest.mark.parametrize("action", ["fail", "DISCARD", "Consume"])
def test_actions_of_a_read(name: str, action: str) -> None:
    """By Java's name, or without what it begins with."""
    assert read({name: action}).failure_action == action.upper()


def test_actions_of_a_write() -> None:
    """FAIL and SEND, and no other."""
    name = "pulsar.producer.cryptoFailureAction"
    assert write({name: "send"}).failure_action == "SEND"
    with pytest.raises(OptionError, match="FAIL or SEND"):
        write({name: "DISCARD"})


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"encryption.keys": "a"}, "needs encryption.publicKeys"),
        ({"encryption.publicKeys": "env:K"}, "needs encryption.keys"),
        (
            {"encryption.keys": "a,b", "encryption.publicKeys": '{"b": "env:B"}'},
            "has no key for a,",
        ),
        ({"encryption.keys": ",", "encryption.publicKeys": "env:K"}, "names no key"),
        ({"encryption.privateKeys": "env:K"}, "option of reading"),
        ({"pulsar.producer.cryptoKeyReader": "x"}, "Use encryption.keys and"),
        (
            {"pulsar.producer.defaultCryptoKeyReaderPublicKey": "file:/k"},
            "Use encryption.keys and",
        ),
        ({"encryption.required": "true"}, "needs encryption.keys"),
        (
            {
                "encryption.required": "true",
                "encryption.keys": "a",
                "encryption.publicKeys": "env:K",
                "pulsar.producer.cryptoFailureAction": "SEND",
            },
            "cannot be used with pulsar.producer.cryptoFailureAction=SEND",
        ),
    ],
)
def test_options_of_writes_that_need_each_other(
    options: dict[str, str], problem: str
) -> None:
    """Half of what it takes would leave messages open: it is an error."""
    with pytest.raises(OptionError, match=problem):
        write(options)


def test_messages_that_must_be_encrypted() -> None:
    """Without a key, too: then no message can be read. CONSUME contradicts that."""
    required = {"encryption.required": "true"}
    assert read(required).is_required
    assert not read({}).is_required
    with pytest.raises(OptionError, match=r"cannot be used with .*CONSUME"):
        read({**required, "cryptoFailureAction": "CONSUME"})


def test_one_set_of_options_for_reads_and_writes() -> None:
    """What a read does not need is ignored; so are private keys by an encrypted write.

    Given to a write alone they are an error: nothing would be encrypted.
    """
    options = {
        "encryption.keys": "a",
        "encryption.publicKeys": "env:PUBLIC",
        "encryption.privateKeys": "env:PRIVATE",
    }
    assert read(options) == read({"encryption.privateKeys": "env:PRIVATE"})
    assert write(options).keys == ("a",)


def test_names_of_javas_builder_in_a_read() -> None:
    """They are refused with what to use instead."""
    name = "pulsar.reader.defaultCryptoKeyReaderPrivateKey"
    with pytest.raises(OptionError, match=r"Use encryption\.privateKeys"):
        read({name: "file:/k"})
