# SPDX-License-Identifier: Apache-2.0
"""What values of messages become in a query, and the other way: by their schema.

A :class:`ValueDecoder` turns values into columns, a :class:`ValueEncoder` columns into
values. There is one of each for a kind of schema, in a module of that name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import pyarrow as pa


class ValueRun(NamedTuple):
    """Values of consecutive messages, at least one.

    Attributes:
        values: The bytes of each message's value, NULL for a null value. They lie where
            they were received; columns may view the same memory.
        schema_version: The version of the schema that they were written with, as the
            producer sent it; empty where it sent none.
    """

    values: pa.BinaryArray
    schema_version: bytes


class ValueDecoder(Protocol):
    """Makes the value columns of a query.

    Attributes:
        columns: Names of the columns that it makes.
        by_version: Whether it depends on the version of the schema. If not, a run is a
            whole RecordBatch, and its version is left empty.
    """

    @property
    def columns(self) -> tuple[str, ...]: ...  # noqa: D102 - see above

    @property
    def by_version(self) -> bool: ...  # noqa: D102

    def decode(self, run: ValueRun) -> Sequence[pa.Array]:
        """Return an array for each of ``columns``, as the query's schema has it.

        Raises:
            UnreadableValueError: A value is not what its schema says, or there is no
                such version. Which value it is need not be said: to find it, they are
                decoded one by one. What Arrow raises for invalid data does as well.
        """
        ...


class ValueEncoder(Protocol):
    """Makes the values of messages.

    Attributes:
        columns: Names of the columns that make a value.
    """

    @property
    def columns(self) -> tuple[str, ...]: ...  # noqa: D102

    def accepts(self, schema: pa.Schema) -> bool:
        """Return whether rows of this schema have ``columns``, of fitting types."""
        ...

    def encode(self, columns: Sequence[pa.Array]) -> pa.LargeBinaryArray:
        """Encode rows.

        Args:
            columns: An array for each of ``columns``.

        Returns:
            The value of each row, NULL for a null value.

        Raises:
            BadRowError: A row cannot be encoded.
        """
        ...


class UnreadableValueError(ValueError):
    """A value is not what its schema says. Users see the ``CorruptEntryError``."""
