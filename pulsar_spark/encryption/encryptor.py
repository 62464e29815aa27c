# SPDX-License-Identifier: Apache-2.0
"""Encryption of payloads for the named public keys."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping

from pulsar_spark.encryption.keys import (
    DATA_KEY_BYTES,
    NONCE_BYTES,
    TAG_BYTES,
    DataKey,
    PublicKey,
    public_keys,
)
from pulsar_spark.errors import OptionError
from pulsar_spark.options.encryption import EncryptionOptions
from pulsar_spark.wire import pulsar_api_pb2 as pb

#: Seconds after which a producer takes another data key, as other clients do. No
#: producer sends so much meanwhile that random nonces could meet, 2^32 entries.
_RENEWAL_S = 4 * 60 * 60

#: Of encryption_param: field 15, its size.
_NONCE_FIELD = bytes((0x7A, NONCE_BYTES))


class Encryptor:
    """Encrypts a producer's payloads. See ``wire.outgoing.Encryption``.

    Args:
        keys: The public key of each recipient, by the name that messages have it by.
        clock: Seconds.
    """

    def __init__(
        self,
        keys: Mapping[str, PublicKey],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._keys = keys
        self._clock = clock
        self._renew()

    @property
    def overhead_bytes(self) -> int:
        """Return the bytes that encryption adds to an entry's metadata and payload."""
        return len(self._fields) + len(_NONCE_FIELD) + NONCE_BYTES + TAG_BYTES

    def encrypt(self, payload: bytes | memoryview) -> tuple[bytes, bytes]:
        """Return what metadata say of the encryption, and the encrypted payload."""
        if self._clock() >= self._renewal:
            self._renew()
        nonce = os.urandom(NONCE_BYTES)
        fields = b"".join((self._fields, _NONCE_FIELD, nonce))
        return fields, self._data_key.encrypt(nonce, payload)

    def _renew(self) -> None:
        data_key = os.urandom(DATA_KEY_BYTES)
        self._data_key = DataKey(data_key)
        self._fields = pb.MessageMetadata(
            encryption_keys=[
                pb.EncryptionKeys(key=name, value=key.wrap(data_key))
                for name, key in self._keys.items()
            ]
        ).SerializePartialToString()
        self._renewal = self._clock() + _RENEWAL_S


def encryptors(
    options: EncryptionOptions, warn: Callable[[str], None]
) -> Callable[[], Encryptor] | None:
    """Read the public keys; return what makes an encryptor for each producer.

    Args:
        options: Which keys, and what to do where one cannot be used.
        warn: Called with a sentence where messages are sent as they are all the same.

    Returns:
        None where nothing is to be encrypted.

    Raises:
        OptionError: A key cannot be used on this node, or is being written.
    """
    places = options.public_keys
    if options.keys is None or places is None:
        return None
    named = {}
    for name in options.keys:
        place = places.of(name)
        assert place is not None, "options were checked"
        named[name] = place
    try:
        keys = public_keys(named)
    except OptionError as error:
        # A key that is being written can be used soon.
        is_for_now = isinstance(error.__cause__, TimeoutError)
        if is_for_now or options.failure_action != "SEND":
            raise
        warn(
            "Messages are NOT encrypted, as `pulsar.producer.cryptoFailureAction=SEND`"
            f" wants it: {error.message}"
        )
        return None
    return lambda: Encryptor(keys)
