# SPDX-License-Identifier: Apache-2.0
"""Where a read starts and ends, as options say it.

``earliest``, ``latest``, or JSON by topic and partition::

    {"demo": {"1:0": 56, "1:10000": "earliest"}}

A partition is ``broker:partition``. An offset counts bytes of the store's index, which
has 28 for each message, and all partitions of a store share it.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from spark_topics.errors import OptionError
from spark_topics.text import Pairs, load_object, shorten
from tubemq_spark.wire.metadata import Partition

#: Bytes of an index entry.
ENTRY_BYTES = 28

#: ``broker:partition``.
PARTITION = re.compile(r"([0-9]{1,9}):([0-9]{1,9})", re.ASCII)

#: As servers number them.
MAX_OFFSET = 2**63 - 1


class Start(enum.Enum):
    """A place that is known by its name."""

    EARLIEST = "earliest"
    LATEST = "latest"


@dataclass(frozen=True)
class Offsets:
    """Where to start, or to end.

    Attributes:
        default: Where nothing else is said.
        by_partition: Of single partitions.
    """

    default: Start
    by_partition: Mapping[Partition, int | Start] = field(default_factory=dict)

    def of(self, partition: Partition) -> int | Start:
        """Return the place of a partition."""
        return self.by_partition.get(partition, self.default)


def offsets_of(default: Start) -> Any:
    """Return a parser of offsets.

    Args:
        default: Where partitions start or end that JSON does not name.
    """

    def parse(text: str, name: str) -> Offsets:
        word = text.strip().lower()
        if word in ("earliest", "latest"):
            return Offsets(Start(word))
        tree = load_object(text)
        if tree is None:
            raise OptionError(
                f"{name} must be earliest, latest, or JSON such as "
                '{"demo":{"1:0":56}}, not ' + repr(text[:100]) + "."
            )
        found: dict[Partition, int | Start] = {}
        for topic, partitions in tree:
            if not isinstance(partitions, Pairs):
                raise OptionError(
                    f"{name} has no partitions for the topic {shorten(topic)}."
                )
            for key, value in partitions:
                partition = _partition(topic, key, name)
                if partition in found:
                    raise OptionError(f"{name} names the partition {partition} twice.")
                found[partition] = _place(value, name, topic, key)
        return Offsets(default, found)

    return parse


def _partition(topic: str, key: str, name: str) -> Partition:
    match = PARTITION.fullmatch(key)
    if match is None:
        raise OptionError(
            f"{name} has {shorten(key)} for the topic {shorten(topic)}: a partition is "
            "broker:partition, such as 1:10000."
        )
    return Partition(topic, int(match[1]), int(match[2]))


def _place(value: Any, name: str, topic: str, key: str) -> int | Start:
    if isinstance(value, str) and value.lower() in ("earliest", "latest"):
        return Start(value.lower())
    if (
        isinstance(value, int)
        and not isinstance(value, bool)
        and 0 <= value <= MAX_OFFSET
        and value % ENTRY_BYTES == 0
    ):
        return value
    raise OptionError(
        f"{name} has {shorten(value)} for {topic} {key}: an offset is a multiple of "
        f"{ENTRY_BYTES}, earliest or latest."
    )
