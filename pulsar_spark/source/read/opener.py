# SPDX-License-Identifier: Apache-2.0
"""Decrypt entries; treat entries without a usable key as the options say."""

from __future__ import annotations

from pulsar_spark.encryption.decryptor import Decryptor
from pulsar_spark.errors import EncryptionError
from pulsar_spark.message_id import MessageId
from pulsar_spark.options.encryption import DecryptionOptions
from pulsar_spark.system import warn_once
from pulsar_spark.wire.entries import StoredEntry

_CURE = (
    " Give the private key of one of these names, or let"
    " `pulsar.reader.cryptoFailureAction` be DISCARD or CONSUME."
)
_CURE_OF_PLAIN = (
    " The read has `encryption.required`: let producers encrypt, or let"
    " `pulsar.reader.cryptoFailureAction` be DISCARD, which leaves such messages out."
)
_NO_BYTES = (
    " `pulsar.reader.cryptoFailureAction` is CONSUME, but these bytes are no values of"
    " the columns that the topic's schema has: read it with"
    " `allowDifferentTopicSchemas=true`, whose `value` is BINARY."
)


class Opener:
    """Opens the encrypted entries of a task.

    Args:
        options: Which keys there are, and what to do without one.
        gives_bytes: Whether `value` is raw BINARY, so that bytes that are still
            encrypted may be rows.

    Attributes:
        discarded: Messages left out so far, as the metadata of their entries counts.
        is_required: Whether messages must be encrypted.
    """

    def __init__(self, options: DecryptionOptions, *, gives_bytes: bool = True) -> None:
        self.discarded = 0
        self._decryptor = Decryptor(options.private_keys)
        self.is_required = options.is_required
        self._action = options.failure_action
        self._gives_bytes = gives_bytes
        self._warned: set[str] = set()

    def open(self, stored: StoredEntry, topic_partition: str) -> StoredEntry | None:
        """Return an entry with a payload that is not encrypted.

        Args:
            stored: The entry, or one chunk.
            topic_partition: The place.

        Returns:
            None if it is left out.

        Raises:
            EncryptionError: No key opens the entry, or the entry must be encrypted and
                is not; and the options say that this fails.
            OptionError: A private key cannot be read on this node, or is none.
        """
        if not stored.is_encrypted:
            if not self.is_required:
                return stored
            return self._unopened(stored, topic_partition, "it is not encrypted.")
        try:
            payload = self._decryptor.decrypt(stored.metadata, stored.payload)
        except EncryptionError as error:
            return self._unopened(stored, topic_partition, error.reason)
        return stored.decrypted(payload)

    def discard(self, stored: StoredEntry) -> None:
        """Count an entry that is left out; of chunks, count the last chunk only."""
        metadata = stored.metadata
        if not stored.is_chunk:
            self.discarded += int(stored.likely_rows)
        elif metadata.chunk_id == metadata.num_chunks_from_msg - 1:
            self.discarded += 1

    def _unopened(
        self, stored: StoredEntry, topic_partition: str, reason: str
    ) -> StoredEntry | None:
        cure = _CURE if stored.is_encrypted else _CURE_OF_PLAIN
        problem = EncryptionError(
            reason + (cure if self._action == "FAIL" else ""),
            topic_partition=topic_partition,
            message_id=str(MessageId(*stored.position)),
        )
        if self._action == "FAIL":
            raise problem
        if self._action == "CONSUME":
            if not self._gives_bytes:
                raise problem.saying(problem.message + _NO_BYTES)
            return stored.as_bytes()
        self.discard(stored)
        if topic_partition not in self._warned:
            self._warned.add(topic_partition)
            required = (
                ", and messages that are not encrypted," if self.is_required else ""
            )
            warn_once(
                f"Encrypted messages of {topic_partition} that no key opens{required}"
                " are left out, because `pulsar.reader.cryptoFailureAction` is DISCARD."
            )
        return None
