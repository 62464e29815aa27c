# SPDX-License-Identifier: Apache-2.0
"""The documentation's tables of columns, made of the packages' own tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pulsar_spark.columns import READ, WRITE
from spark_topics.columns import Read, Write


def columns_of_a_read(columns: Mapping[str, Read] = READ) -> str:
    """Return the columns that a read can give as a Markdown table."""
    return _table(
        "what it holds",
        ((name, read.type.value, read.doc) for name, read in columns.items()),
    )


def columns_of_a_write(columns: Mapping[str, Write] = WRITE) -> str:
    """Return the columns that a write can take as a Markdown table."""
    return _table(
        "what becomes of it",
        (
            (name, " or ".join(type_.value for type_ in write.types), write.doc)
            for name, write in columns.items()
        ),
    )


def _table(heading: str, rows: Iterable[tuple[str, str, str]]) -> str:
    lines = [f"| column | type | {heading} |", "|---|---|---|"]
    lines += [
        f"| `{name}` | {type_} | {doc}".rstrip() + " |" for name, type_, doc in rows
    ]
    return "\n".join(lines)
