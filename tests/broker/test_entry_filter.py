# SPDX-License-Identifier: Apache-2.0
"""Entries that a real broker hides, by an entry filter (PIP-105) that is made here."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pulsar_spark.testing.admin import Admin
from pulsar_spark.testing.embedded_broker import EmbeddedBroker
from pulsar_spark.testing.jars import resolve_classpath
from tests.support import official
from tests.support.jvm import compile_java
from tests.support.official import Message
from tests.support.reading import read

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.soak

FILTER = """\
import org.apache.bookkeeper.mledger.Entry;
import org.apache.pulsar.broker.service.plugin.EntryFilter;
import org.apache.pulsar.broker.service.plugin.FilterContext;

public class HideMarked implements EntryFilter {
    public FilterResult filterEntry(Entry entry, FilterContext context) {
        boolean isMarked = context.getMsgMetadata().getPropertiesList().stream()
            .anyMatch(property -> property.getKey().equals("hidden"));
        return isMarked ? FilterResult.REJECT : FilterResult.ACCEPT;
    }

    public void close() {}
}
"""
DESCRIPTION = """\
name: hide
description: Hides messages with the property "hidden".
entryFilterClass: HideMarked
"""


def make_filter(folder: Path) -> None:
    """Makes the archive that a broker loads filters from."""
    source = folder / "HideMarked.java"
    source.write_text(FILTER)
    compile_java(source, resolve_classpath(), folder)
    with zipfile.ZipFile(folder / "hide.nar", "w") as archive:
        archive.write(folder / "HideMarked.class", "HideMarked.class")
        archive.writestr("META-INF/services/entry_filter.yml", DESCRIPTION)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    """A broker that hides what is marked."""
    folder = tmp_path_factory.mktemp("filter")
    make_filter(folder)
    settings = {
        "entryFilterNames": "hide",
        "entryFiltersDirectory": str(folder),
        "narExtractionDirectory": str(folder / "extracted"),
    }
    with EmbeddedBroker(settings=settings) as running:
        yield running


@pytest.mark.parametrize(
    "marks",
    ["..#..", "..#..###", "#", "#####", "." * 150 + "#" * 350],
    ids=["middle", "end", "one", "all", "many"],
)
def test_hidden_entries(
    marks: str, broker: EmbeddedBroker, request: pytest.FixtureRequest
) -> None:
    """A read gives the rows that are not hidden, and ends."""
    messages = [
        Message(str(number).encode(), properties={"hidden": ""} if mark == "#" else {})
        for number, mark in enumerate(marks)
    ]
    topic = f"persistent://public/default/{request.node.callspec.id}"
    Admin(broker.admin_url).set_retention("public/default", minutes=-1, size_mb=-1)
    official.produce(broker.service_url, topic, messages)
    rows = read(broker.service_url, {"topic": topic, "failOnDataLoss": "true"})
    seen = [int(row.value or b"") for row in rows]
    assert seen == [number for number, mark in enumerate(marks) if mark == "."]
