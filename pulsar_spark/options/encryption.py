# SPDX-License-Identifier: Apache-2.0
"""The options of messages that are encrypted from end to end."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from pulsar_spark.errors import OptionError
from pulsar_spark.options.secret import Secret
from spark_topics.options.given import Given
from spark_topics.options.spec import OptionSpec, Scope, option, set_by
from spark_topics.options.values import boolean, properties, word


@dataclass(frozen=True)
class KeyPlaces:
    """Where each node finds keys.

    Attributes:
        by_name: The keys that have a name, each with the name.
        default: The key for all other names; None for none.
    """

    by_name: tuple[tuple[str, Secret], ...] = ()
    default: Secret | None = None

    def of(self, name: str) -> Secret | None:
        """Return where the key of this name is, None where there is none."""
        for known_name, place in self.by_name:
            if known_name == name:
                return place
        return self.default


#: What a key that is given as it is begins with.
_INLINE = ("-----BEGIN ", "data:")

#: The same in a list, or behind other words.
_SEEMS_KEY = re.compile(r"-----BEGIN |(?:^|,)\s*data:[^,]*[/;][^,]*,")


def _key_places(text: str, option: str) -> KeyPlaces:
    """Parse the places of keys by name from JSON, or a place for all names.

    Errors show no place.
    """
    if not text.lstrip().startswith("{"):
        return KeyPlaces((), _key(text, option))
    try:
        pairs = properties(text, option)
    except OptionError:
        raise OptionError(
            f"{option} must be a JSON object of names and keys, each name once, such as"
            ' {"name": "file:/path/to/key.pem"}; or one key for all names.'
        ) from None
    for name, _ in pairs:
        _check_name(name, option)
    return KeyPlaces(
        tuple((name, _key(place, f"{option}[{name}]")) for name, place in pairs)
    )


def _key(text: str, option: str) -> Secret:
    key = Secret(text.strip(), option)
    if key.is_inline and not text.strip().startswith(_INLINE):
        raise OptionError(
            f"{option} must be file:/path/to/key.pem, env:NAME, a URI that begins with"
            " data:, or the text of a key in PEM."
        )
    return key


def _check_name(text: str, option: str) -> None:
    """Raise if a key, which errors must not show, is in place of its name."""
    if _SEEMS_KEY.search(text):
        raise OptionError(
            f"{option} has a key where the name of one belongs: keys are in"
            " encryption.privateKeys and encryption.publicKeys, behind their names."
        )


def _key_names(text: str, option: str) -> tuple[str, ...]:
    """Read names by comma; what comes twice counts once."""
    _check_name(text, option)
    names = tuple(dict.fromkeys(filter(None, map(str.strip, text.split(",")))))
    if not names:
        raise OptionError(f"{option} names no key.")
    return names


_HOW_GIVEN = (
    'JSON such as `{"name": "file:/path/to/key.pem"}`, or one key for all names: each'
    " `file:`, `env:`, a `data:` URI, or the text in PEM."
)


_REQUIRED = OptionSpec(
    "encryption.required",
    "false",
    boolean,
    Scope.CLIENT,
    "Whether messages must be encrypted. A read takes a message that is not encrypted"
    " for a message that no key opens. A write needs `encryption.keys`, and sends"
    " nothing without encryption.",
)


@dataclass(frozen=True)
class DecryptionOptions:
    """How a read takes encrypted messages."""

    private_keys: KeyPlaces | None = option(
        "encryption.privateKeys",
        None,
        _key_places,
        Scope.READ,
        f"Keys that open encrypted messages: {_HOW_GIVEN} Each task reads those that it"
        " needs. See [Encryption](security.md#encryption).",
    )
    failure_action: str = option(
        "pulsar.reader.cryptoFailureAction",
        "FAIL",
        word("FAIL", "DISCARD", "CONSUME"),
        Scope.READ,
        "What becomes of a message that no key opens: `FAIL` fails, `DISCARD` leaves it"
        " out, `CONSUME` gives its encrypted bytes.",
        "pulsar.consumer.cryptoFailureAction",
        "cryptoFailureAction",
    )
    is_required: bool = field(default=False, metadata=set_by(_REQUIRED))


@dataclass(frozen=True)
class EncryptionOptions:
    """The encryption of a write, if any."""

    keys: tuple[str, ...] | None = option(
        "encryption.keys",
        None,
        _key_names,
        Scope.WRITE,
        "Names of the keys to encrypt messages with, by comma: who has the private key"
        " of any of them can read them. Nothing is encrypted without it.",
    )
    public_keys: KeyPlaces | None = option(
        "encryption.publicKeys",
        None,
        _key_places,
        Scope.WRITE,
        f"The public keys of these names: {_HOW_GIVEN}",
    )
    failure_action: str = option(
        "pulsar.producer.cryptoFailureAction",
        "FAIL",
        word("FAIL", "SEND"),
        Scope.WRITE,
        "What to do where a public key cannot be used: `FAIL` fails, `SEND` sends the"
        " messages as they are, with a warning.",
    )
    is_required: bool = field(default=False, metadata=set_by(_REQUIRED))


def check_decryption(given: Given, decryption: DecryptionOptions) -> None:
    """Add problems of contradictory decryption options to ``given``."""
    if decryption.is_required and decryption.failure_action == "CONSUME":
        given.problems.append(
            "encryption.required=true cannot be used with"
            " pulsar.reader.cryptoFailureAction=CONSUME, which takes the bytes of any"
            " message. Set FAIL or DISCARD."
        )


def check_encryption(given: Given, encryption: EncryptionOptions) -> None:
    """Add problems of incomplete encryption options to ``given``."""
    keys, places = encryption.keys, encryption.public_keys
    if encryption.is_required:
        if "encryption.keys" not in given:
            given.problems.append(
                "encryption.required=true needs encryption.keys, the names of the keys"
                " to encrypt with."
            )
        if encryption.failure_action == "SEND":
            given.problems.append(
                "encryption.required=true cannot be used with"
                " pulsar.producer.cryptoFailureAction=SEND, which sends messages that"
                " are not encrypted. Set FAIL."
            )
    if "encryption.keys" not in given:
        if given.key_of("encryption.privateKeys"):
            given.problems.append(
                "encryption.privateKeys is an option of reading: nothing would be"
                " encrypted. Set encryption.keys and encryption.publicKeys, too, or"
                " leave it out of a write."
            )
        if places is not None:
            given.problems.append(
                "encryption.publicKeys needs encryption.keys, the names of the keys to"
                " encrypt with: nothing would be encrypted."
            )
    elif "encryption.publicKeys" not in given:
        given.problems.append(
            "encryption.keys needs encryption.publicKeys: where these keys are."
        )
    elif keys and places:
        absent = [name for name in keys if places.of(name) is None]
        given.problems += [
            f"encryption.publicKeys has no key for {name}, which encryption.keys names."
            for name in absent
        ]
