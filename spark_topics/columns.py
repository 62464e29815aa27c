# SPDX-License-Identifier: Apache-2.0
"""How a column is declared: once, with what a read gives and what a write takes.

A messaging system has one table of such columns. Schemas, checks and documents follow
from it.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass


class ColumnType(enum.Enum):
    """A column type by the name in Spark's SQL."""

    BINARY = "BINARY"
    STRING = "STRING"
    BOOLEAN = "BOOLEAN"
    INT = "INT"
    BIGINT = "BIGINT"
    TIMESTAMP = "TIMESTAMP"
    STRING_MAP = "MAP<STRING, STRING>"
    BINARY_MAP = "MAP<STRING, BINARY>"
    POSITION = "STRUCT<ledgerId: BIGINT, entryId: BIGINT, batchIndex: INT>"

    @property
    def simple_string(self) -> str:
        """Return the name that Spark's ``DataType.simpleString()`` has."""
        # Names of fields stay as they are.
        words = re.sub(r"\b[A-Z]+\b", lambda word: word[0].lower(), self.value)
        return words.replace(" ", "")


@dataclass(frozen=True)
class Read:
    """What a read gives.

    Attributes:
        type: Type of the column.
        doc: The content, in Markdown.
        default: Whether a read gives it unless options say otherwise.
        never_null: Whether every message has a value for it.
    """

    type: ColumnType
    doc: str = ""
    default: bool = False
    never_null: bool = False


@dataclass(frozen=True)
class Write:
    """What a write takes.

    Attributes:
        order: Where the column is in lists of what can be written.
        types: Types that it may have. INT and BIGINT stand for all types of integers.
        doc: What becomes of it, in Markdown.
    """

    order: int
    types: tuple[ColumnType, ...]
    doc: str


@dataclass(frozen=True)
class Column:
    """A column: name, read side and write side.

    Attributes:
        name: Its name.
        read: What a read gives; None if it can only be written.
        write: What a write takes; None if it can only be read.
    """

    name: str
    read: Read | None
    write: Write | None = None
