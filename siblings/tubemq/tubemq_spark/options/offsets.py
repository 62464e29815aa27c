# SPDX-License-Identifier: Apache-2.0
"""Start and end positions of reads, from options.

``earliest``, ``latest``, or JSON by topic and partition::

    {"demo": {"1:0": 56, "1:10000": "earliest"}}

A partition is ``broker:partition``. An offset counts bytes of the store's index, which
has 28 for each message, and all partitions of a store share it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from spark_topics.options.offsets import Edge, Offsets, offsets_parser
from spark_topics.options.spec import Parse
from spark_topics.text import Pairs, shorten
from tubemq_spark.wire.metadata import Partition

#: Bytes of an index entry.
ENTRY_BYTES = 28

#: ``broker:partition``.
PARTITION = re.compile(r"([0-9]{1,9}):([0-9]{1,9})", re.ASCII)

#: As servers number them.
MAX_OFFSET = 2**63 - 1


_EXAMPLE = (
    'Write earliest, latest, or JSON such as {"demo":{"1:0":56,"1:10000":"latest"}}.'
)


def offsets_of(unnamed: Edge) -> Parse[Offsets[Partition]]:
    """Return a parser of offsets.

    Args:
        unnamed: Where partitions start or end that JSON does not name.
    """
    return offsets_parser(_partitions, _problem, _EXAMPLE, unnamed)


def _partitions(topic: str, value: object) -> Iterator[tuple[Partition, object]]:
    if not isinstance(value, Pairs):
        raise ValueError(f"{shorten(topic)} has no partitions below it")
    for key, place in value:
        match = PARTITION.fullmatch(key)
        if match is None:
            raise ValueError(
                f"{shorten(key)} below {shorten(topic)} is no partition, which is"
                " broker:partition, such as 1:10000"
            )
        yield Partition(topic, int(match[1]), int(match[2])), place


def _problem(offset: int) -> str | None:
    if 0 <= offset <= MAX_OFFSET and offset % ENTRY_BYTES == 0:
        return None
    return f"offsets are multiples of {ENTRY_BYTES}"
