# SPDX-License-Identifier: Apache-2.0
"""Payloads as they were before their producer encrypted them."""

from __future__ import annotations

from itertools import islice

from pulsar_spark.encryption.keys import (
    DataKey,
    PrivateKey,
    UnwrapError,
    private_key,
)
from pulsar_spark.errors import EncryptionError, foreign_text
from pulsar_spark.loops.messages import MOST_ENCRYPTION_KEYS
from pulsar_spark.options.encryption import KeyPlaces
from pulsar_spark.wire import pulsar_api_pb2 as pb

#: Data keys that are remembered, those that no key opens included. Each producer has
#: one, and a new one every few hours.
_MOST_DATA_KEYS = 1024

#: No longer data key, as it is sent, is looked at: that of an RSA key of 16,384 bits.
_MOST_WRAPPED_BYTES = 2048

#: Data keys of one entry that are tried and were not seen before: with RSA it takes
#: about a millisecond to find that one is of no use.
_MOST_TRIES = 16

#: Names of keys that an error shows, and characters of each.
_MOST_NAMES = 3
_NAME_CHARACTERS = 60


class Decryptor:
    """Decrypts payloads with the private keys that there are.

    A key is read when the first message asks for it. A data key is decrypted once.

    Args:
        places: Where the private keys are; None for nowhere.
    """

    def __init__(self, places: KeyPlaces | None) -> None:
        self._places = places or KeyPlaces()
        self._private: dict[str, PrivateKey] = {}
        self._data_keys: dict[tuple[str, bytes], DataKey | None] = {}

    def decrypt(
        self, metadata: pb.MessageMetadata, payload: bytes | memoryview
    ) -> bytes:
        """Return the payload as it was before it was encrypted.

        Raises:
            EncryptionError: No private key opens it.
            OptionError: A private key cannot be read on this node, or is none.
        """
        tries = 0
        is_known = False
        for key in islice(metadata.encryption_keys, MOST_ENCRYPTION_KEYS):
            name, wrapped = _text(key.key), key.value
            if self._places.of(name) is None or len(wrapped) > _MOST_WRAPPED_BYTES:
                continue
            is_known = True
            if (name, wrapped) not in self._data_keys:
                if tries == _MOST_TRIES:
                    continue
                tries += 1
                self._remember(name, wrapped)
            data_key = self._data_keys[name, wrapped]
            if data_key is None:
                continue
            opened = data_key.decrypt(metadata.encryption_param, payload)
            if opened is not None:
                return opened
        names = _names(metadata)
        if not is_known:
            raise EncryptionError(
                f"it is encrypted for {names}, of which `encryption.privateKeys` has"
                " no key."
            )
        # The same words whatever it is: who sends damaged messages to learn something
        # from what they lead to learns nothing.
        raise EncryptionError(
            f"it is encrypted for {names}, and no key of `encryption.privateKeys` opens"
            " it: another key was used, or the message was changed."
        )

    def _remember(self, name: str, wrapped: bytes) -> None:
        if len(self._data_keys) >= _MOST_DATA_KEYS:
            del self._data_keys[next(iter(self._data_keys))]
        private = self._private_key(name)
        try:
            self._data_keys[name, wrapped] = DataKey(private.unwrap(wrapped))
        except UnwrapError:
            self._data_keys[name, wrapped] = None

    def _private_key(self, name: str) -> PrivateKey:
        place = self._places.of(name)
        assert place is not None
        # One key for all names is one, whatever names there are.
        known_as = "" if place is self._places.default else f"={name}"
        if known_as not in self._private:
            self._private[known_as] = private_key(place, name)
        return self._private[known_as]


def _names(metadata: pb.MessageMetadata) -> str:
    """Return whom a message is for, as an error shows it."""
    keys = metadata.encryption_keys
    shown = dict.fromkeys(_text(key.key) for key in islice(keys, MOST_ENCRYPTION_KEYS))
    names = [repr(foreign_text(name, _NAME_CHARACTERS)) for name in shown]
    more = ", and others" if len(names) > _MOST_NAMES else ""
    word = "the key" if len(names) == 1 else "the keys"
    return f"{word} {', '.join(names[:_MOST_NAMES])}{more}"


def _text(name: str | bytes) -> str:
    """Return a name as text: one runtime of protobuf gives bytes that are no UTF-8."""
    return name if isinstance(name, str) else name.decode("utf-8", "replace")
