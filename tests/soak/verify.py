# SPDX-License-Identifier: Apache-2.0
"""What is in source and sink at the end, as the official client and ours read them."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import pulsar

from tests.soak.site import PARTS, Site, parts
from tests.soak.traffic import parsed
from tests.support import reading
from tests.support.official import _TIMEOUT_MS, _has_more, client


@dataclass
class Content:
    """The rows of a topic.

    Attributes:
        numbers: Of each partition of the source, in the order of each topic partition.
        disordered: Rows that stand behind a later one of their partition of the source,
            in a topic partition.
    """

    numbers: list[array[int]] = field(
        default_factory=lambda: [array("q") for _ in range(PARTS)]
    )
    disordered: int = 0

    @classmethod
    def of(cls, topic_partitions: Iterable[Iterable[bytes]]) -> Content:
        """Of the values in each topic partition."""
        found = cls()
        for values in topic_partitions:
            last = [-1] * PARTS
            for value in values:
                part, number, _ = parsed(value)
                found.numbers[part].append(number)
                found.disordered += number < last[part]
                last[part] = max(last[part], number)
        return found

    def __len__(self) -> int:
        return sum(map(len, self.numbers))

    def beside(self, other: Content) -> tuple[list[str], list[str]]:
        """Rows of the other one that this one lacks, and rows that it has too often."""
        lost: list[str] = []
        repeated: list[str] = []
        for part, (mine, theirs) in enumerate(
            zip(self.numbers, other.numbers, strict=True)
        ):
            here, there = Counter(mine), Counter(theirs)
            lost += [f"{part}:{n}" for n in (there - here).elements()]
            repeated += [f"{part}:{n}" for n in (here - there).elements()]
        return lost, repeated


def by_official(site: Site, topic: str) -> Content:
    """What the official client reads."""
    with client(site.cluster.tls_url, **site.official("watcher")) as one:
        return Content.of(_values(one, name) for name in parts(topic))


def _values(one: pulsar.Client, name: str) -> Iterator[bytes]:
    reader = one.create_reader(name, pulsar.MessageId.earliest)
    while _has_more(reader):
        yield reader.read_next(_TIMEOUT_MS).data()
    reader.close()


def by_ours(site: Site, topic: str) -> Content:
    """What a batch read of ours reads."""
    options = {**site.straight(), "topic": topic, "metadataColumns": "none"}
    url = options.pop("service.url")

    def values(name: str) -> Iterator[bytes]:
        reader = reading.reader_of(url, {**options, "topic": name})
        for partition in reader.partitions():
            for record_batch in reader.read(partition):
                yield from record_batch.column("value").to_pylist()

    return Content.of(values(name) for name in parts(topic))
