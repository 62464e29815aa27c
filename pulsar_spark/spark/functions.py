# SPDX-License-Identifier: Apache-2.0
"""Functions on columns of positions and message ids, for queries of users.

A position is the column ``__position`` of a read, see ``columns``. Positions compare
field by field, so ``max``, ``max_by``, ``orderBy`` and ``>`` go by the order of the
topic partition. Between topic partitions their order means nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pulsar_spark.columns import READ
from pulsar_spark.message_id import decode_message_id

# Each process of a query imports the package, and none of them calls these functions.
if TYPE_CHECKING:
    from pyspark.sql import Column


def position_text(position: Column | str) -> Column:
    """Return a position as text: ``ledger:entry`` or ``ledger:entry:batchIndex``.

    That is the form of a position in ``startingOffsets`` and ``endingOffsets``.

    Args:
        position: A column like ``__position``, or its name; NULL gives NULL.
    """
    return _text(_column(position), 0)


def position_after(position: Column | str) -> Column:
    """Return the place after a message as text, for ``startingOffsets``.

    A read that begins there has all that follows the message, and not the message.

    Args:
        position: As of `position_text`.
    """
    return _text(_column(position), 1)


def position_of(message_id: Column | str) -> Column:
    """Return the position of a message id, as the column ``__position`` has it.

    Where rows have ``__position``, that column costs less.

    Args:
        message_id: A column of bytes like ``__messageId``, or its name; NULL gives
            NULL.
    """
    from pyspark.sql.functions import udf

    # With Arrow it would need Pandas.
    type_ = READ["__position"].type.simple_string
    return udf(_decoded, type_, useArrow=False)(_column(message_id))


def _column(column: Column | str) -> Column:
    from pyspark.sql.functions import col

    return col(column) if isinstance(column, str) else column


def _text(position: Column, step: int) -> Column:
    from pyspark.sql.functions import concat_ws, when

    ledger, entry, index = (
        position[name] for name in ("ledgerId", "entryId", "batchIndex")
    )
    batched = concat_ws(":", ledger, entry, index + step)
    return when(index >= 0, batched).when(
        index < 0, concat_ws(":", ledger, entry + step)
    )


def _decoded(data: bytes | None) -> tuple[int, int, int] | None:
    if data is None:
        return None
    message_id = decode_message_id(bytes(data))
    return message_id.ledger_id, message_id.entry_id, message_id.batch_index
