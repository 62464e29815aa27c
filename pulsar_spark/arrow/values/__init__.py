# SPDX-License-Identifier: Apache-2.0
"""Values of messages as columns, and columns as values, by the schema.

A :class:`ValueDecoder` turns values into columns, a :class:`ValueEncoder` columns into
values. There is one of each for a kind of schema, in a module of that name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import pyarrow as pa

from pulsar_spark.schemas.info import SchemaInfo


class ValueRun(NamedTuple):
    """Values of consecutive messages, at least 1.

    Attributes:
        values: The bytes of each message's value, NULL for a null value. They lie where
            they were received; columns may view the same memory. May be a slice.
        schema_version: The version of the schema that they were written with, as the
            producer sent it; empty if it sent none.
        keys: The partition key of each message, decoded, NULL where there is none; only
            for a decoder with ``needs_keys``.
    """

    values: pa.BinaryArray
    schema_version: bytes = b""
    keys: pa.BinaryArray | None = None


class Decoded(NamedTuple):
    """The columns of a run.

    Attributes:
        columns: An array for each of the decoder's columns, of the type that the
            query's schema has, as long as the run.
        bad: Rows of values that are not what their schema says, ascending, from 0: NULL
            in all columns.
        reason: What is wrong with the first of them, as a part of a sentence.
    """

    columns: Sequence[pa.Array]
    bad: Sequence[int] = ()
    reason: str = ""


class ValueDecoder(Protocol):
    """Makes the value columns of a query.

    A null value, which a run has as NULL, is NULL in all columns, and not bad.

    Attributes:
        columns: Names of the columns that it makes.
        by_version: Whether it depends on the version of the schema. If not, a run is a
            whole RecordBatch, and its version is left empty.
        needs_keys: Whether columns are made of the messages' keys.
    """

    @property
    def columns(self) -> tuple[str, ...]: ...  # noqa: D102 - see above

    @property
    def by_version(self) -> bool: ...  # noqa: D102

    @property
    def needs_keys(self) -> bool: ...  # noqa: D102

    def added_bytes(self, rows: int, size_bytes: int) -> int:
        """Return the bytes that the schema may add to ``rows`` of ``size_bytes``."""
        ...

    def decode(self, run: ValueRun) -> Decoded:
        """Return the columns of a run; never raise for what a producer sent."""
        ...


class ValueSettings(NamedTuple):
    """What a user may say about values, of a read and of a write.

    Attributes:
        json_bytes: How JSON holds bytes: ``base64``, as Java writes them, or ``utf8``,
            as Python does. "" for what is usual: ``base64`` in a read, what the schema
            says in a write.
        time_zone: In which a DATE schema's moments have their day.
    """

    json_bytes: str = ""
    time_zone: str = "UTC"


class VersionDecoder(Protocol):
    """Makes the value columns of messages written with a single schema version.

    Each kind of schema has a :class:`SchemaKind` that plans it.
    """

    def decode(self, values: pa.BinaryArray, keys: pa.BinaryArray | None) -> Decoded:
        """Return the columns of ``wanted``, in that order; as ``ValueDecoder`` does."""
        ...


class SchemaKind(Protocol):
    """The operations of a kind of schema, usually from the module of the same name."""

    def columns_of(self, info: SchemaInfo) -> pa.Schema:
        """Return the columns of a topic with this schema, if the user names no columns.

        Raises:
            InvalidSchemaError: There are none.
        """
        ...

    def decoder(
        self,
        writer: SchemaInfo,
        reader: SchemaInfo,
        wanted: pa.Schema,
        settings: ValueSettings,
    ) -> VersionDecoder:
        """Plan, once, how values of ``writer`` become the columns of ``wanted``.

        Args:
            writer: The schema that messages were written with.
            reader: The schema of the query.
            wanted: Names and types, of ``reader`` or what the user made of them.
            settings: What the user says about decoding.

        Raises:
            InvalidSchemaError: The one cannot be read as the other.
        """
        ...


class EncodedValues(NamedTuple):
    """What rows become in messages.

    Attributes:
        values: The value of each row, NULL for a null value.
        keys: The key of each row as bytes, where the schema puts a part of the value
            there: NULL for a null key. None where keys are not the schema's business.
    """

    values: pa.LargeBinaryArray
    keys: pa.LargeBinaryArray | None = None


class ValueEncoder(Protocol):
    """Makes the values of messages.

    Attributes:
        columns: Names of the columns that make a value.
    """

    @property
    def columns(self) -> tuple[str, ...]: ...  # noqa: D102

    def encode(self, columns: Sequence[pa.Array]) -> EncodedValues:
        """Encode rows.

        Args:
            columns: An array for each of ``columns``.

        Raises:
            UnfitValueError: A row cannot be encoded.
        """
        ...
