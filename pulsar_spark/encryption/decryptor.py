# SPDX-License-Identifier: Apache-2.0
"""Decryption of payloads."""

from __future__ import annotations

import contextlib
import os
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
from pulsar_spark.options.secret import Secret
from pulsar_spark.wire import pulsar_api_pb2 as pb

#: Data keys that are remembered, those that no key opens included. Each producer has
#: one, and a new one every few hours.
_MOST_DATA_KEYS = 1024

#: No longer data key, as it is sent, is looked at: that of an RSA key of 16,384 bits.
_MOST_WRAPPED_BYTES = 2048

#: Data keys of one entry that are tried and were not seen before: with RSA it takes
#: about a millisecond to find that one is of no use.
_MOST_TRIES = 16

#: Further tries of a task for entries with more recipients, until one of them succeeds.
#: A flood of useless data keys takes a second of a task.
_FURTHER_TRIES = 1000

#: Private keys of one place that are kept: the one it has, and those it had before.
_MOST_KEPT = 4

#: Names of keys that an error shows, and characters of each.
_MOST_NAMES = 3
_NAME_CHARACTERS = 60


class Decryptor:
    """Decrypts payloads with the private keys that there are.

    A key is read when the first message asks for it, and again when its file has
    changed and a message comes that it does not open; those that were read before are
    kept, because messages for both may come in any order. A data key is decrypted once.

    Args:
        places: Where the private keys are; None for nowhere.
    """

    def __init__(self, places: KeyPlaces | None) -> None:
        self._places = places or KeyPlaces()
        self._private: dict[str, _PrivateKeys] = {}
        self._data_keys: dict[tuple[str, bytes], DataKey | None] = {}
        self._further_tries = _FURTHER_TRIES

    def decrypt(
        self, metadata: pb.MessageMetadata, payload: bytes | memoryview
    ) -> bytes:
        """Return the decrypted payload.

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
            data_key = self._data_keys.get((name, wrapped))
            if data_key is None:
                is_further = tries >= _MOST_TRIES
                if is_further and not self._further_tries:
                    continue
                data_key, was_tried = self._data_key(name, wrapped)
                tries += was_tried
                self._further_tries -= is_further and was_tried
            if data_key is None:
                continue
            opened = data_key.decrypt(metadata.encryption_param, payload)
            if opened is not None:
                if tries:
                    self._further_tries = _FURTHER_TRIES
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

    def _data_key(self, name: str, wrapped: bytes) -> tuple[DataKey | None, bool]:
        """Return a data key, None if no private key fits, and whether any was tried."""
        keys = self._keys_for(name)
        is_new = (name, wrapped) not in self._data_keys
        if not is_new and not keys.has_changed:
            return None, False
        data_key = keys.data_key(wrapped) if is_new else None
        if data_key is None and keys.has_changed:
            keys.read()
            # It may open what no key before it did.
            opened = ((index, key) for index, key in self._data_keys.items() if key)
            self._data_keys = dict(opened)
            data_key = keys.data_key(wrapped)
        if is_new and len(self._data_keys) >= _MOST_DATA_KEYS:
            del self._data_keys[next(iter(self._data_keys))]
        self._data_keys[name, wrapped] = data_key
        return data_key, True

    def _keys_for(self, name: str) -> _PrivateKeys:
        place = self._places.of(name)
        assert place is not None
        # One key for all names is one, whatever names there are.
        known_as = "" if place is self._places.default else f"={name}"
        private_keys = self._private.get(known_as)
        if private_keys is None:
            private_keys = self._private[known_as] = _PrivateKeys(place, name)
        return private_keys


class _PrivateKeys:
    """The private keys of a place, current and former, latest first.

    Args:
        place: The place.
        name: As messages have it, for errors.
    """

    def __init__(self, place: Secret, name: str) -> None:
        self._place = place
        self._name = name
        self._keys: list[PrivateKey] = []
        self._file: _Stamp = None
        self.read()

    @property
    def has_changed(self) -> bool:
        """Return whether there may be another key by now."""
        return self._place.path is not None and self._file != _stamp(self._place.path)

    def read(self) -> None:
        """Read the key that is there now.

        Raises:
            OptionError: It cannot be read on this node, or is none.
        """
        # Before: what changes meanwhile is seen as another the next time.
        self._file = _stamp(self._place.path)
        key = private_key(self._place, self._name)
        before = [
            existing for existing in self._keys if existing != key
        ]  # it may be the same again
        self._keys = [key, *before][:_MOST_KEPT]

    def data_key(self, wrapped: bytes) -> DataKey | None:
        """Return a data key, None if no private key fits."""
        for key in self._keys:
            with contextlib.suppress(UnwrapError):
                return DataKey(key.unwrap(wrapped))
        return None


#: By which a file that has changed is told: its time, size and number.
_Stamp = tuple[int, int, int] | None


def _stamp(path: str | None) -> _Stamp:
    if path is not None:
        with contextlib.suppress(OSError, ValueError):
            stat = os.stat(path)
            return stat.st_mtime_ns, stat.st_size, stat.st_ino
    return None


def _names(metadata: pb.MessageMetadata) -> str:
    """Return the names of a message's keys, for errors."""
    keys = metadata.encryption_keys
    shown = dict.fromkeys(_text(key.key) for key in islice(keys, MOST_ENCRYPTION_KEYS))
    names = [repr(foreign_text(name, _NAME_CHARACTERS)) for name in shown]
    more = ", and others" if len(names) > _MOST_NAMES else ""
    word = "the key" if len(names) == 1 else "the keys"
    return f"{word} {', '.join(names[:_MOST_NAMES])}{more}"


def _text(name: str | bytes) -> str:
    """Return a name as text: a protobuf runtime gives bytes for invalid UTF-8."""
    return name if isinstance(name, str) else name.decode("utf-8", "replace")
