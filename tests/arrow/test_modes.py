# SPDX-License-Identifier: Apache-2.0
"""What becomes of rows whose value is bad, where RecordBatches are built."""

from __future__ import annotations

import logging
from typing import Any

import pyarrow as pa
import pytest

from pulsar_spark.arrow.decode import Mode, RecordBatchBuilder
from pulsar_spark.arrow.message_columns import COLUMN_SOURCES
from pulsar_spark.arrow.values import Decoded, ValueRun
from pulsar_spark.errors import CorruptEntryError
from pulsar_spark.wire.entries import Entry, StoredEntry
from tests.support import entries
from tests.support.entries import decode_entry


class Pairs:
    """Makes structs of keys and values; a value ``bad`` is bad."""

    columns = ("pair",)
    by_version = True
    needs_keys = True
    type = pa.struct([pa.field("key", pa.binary()), pa.field("value", pa.binary())])

    def added_bytes(self, rows: int, size_bytes: int) -> int:
        """Return 0."""
        del rows, size_bytes
        return 0

    def decode(self, run: ValueRun) -> Decoded:
        """Return the pairs, NULL where the value is."""
        assert run.keys is not None
        rows = list(zip(run.keys.to_pylist(), run.values.to_pylist(), strict=True))
        bad = [at for at, (_, value) in enumerate(rows) if value == b"bad"]
        pairs = [
            None if at in bad or value is None else {"key": key, "value": value}
            for at, (key, value) in enumerate(rows)
        ]
        return Decoded((pa.array(pairs, self.type),), bad, "as it says" if bad else "")


def entry(entry_id: int, version: bytes, *members: bytes) -> Entry:
    """A batch of these messages."""
    metadata, payload = entries.batch(members, schema_version=version)
    metadata.producer_name = "p"
    return decode_entry(StoredEntry(7, entry_id, metadata, payload))


def encoded(value: bytes, key: str) -> bytes:
    """A message whose key is said to be base64."""
    return entries.member(value, partition_key=key, partition_key_b64_encoded=True)


#: Of two versions, each with something bad.
ENTRIES = (
    entry(
        0,
        bytes(8),
        entries.member(b"a", key="k"),
        entries.member(b"bad", key="k"),
        entries.member(None),
    ),
    entry(1, bytes(7) + b"\1", entries.member(b"b"), encoded(b"c", "no!")),
    entry(2, bytes(8), encoded(b"d", "a2s=")),
)


def rows(mode: Mode, type_: pa.DataType | None = None) -> list[dict[str, Any]]:
    """What is built of them."""
    fields = [pa.field("pair", Pairs.type), pa.field("__sequenceId", pa.int64())]
    if type_ is not None:
        fields.insert(0, pa.field("bad", type_))
    schema = pa.schema(fields)
    build = RecordBatchBuilder(
        schema,
        COLUMN_SOURCES,
        "t",
        -1,
        max_rows=100,
        max_bytes=1 << 20,
        values=Pairs(),
        mode=mode,
        corrupt_record="" if type_ is None else "bad",
    )
    for one in ENTRIES:
        assert not list(build.add(one))
    found = build.finish()
    found.validate(full=True)
    assert found.schema == schema
    empty = build.finish()
    assert (empty.schema, len(empty)) == (schema, 0)
    return found.to_pylist()  # type: ignore[no-any-return]


A, B, D = (
    {"key": key, "value": value}
    for key, value in ((b"k", b"a"), (None, b"b"), (b"kk", b"d"))
)


def test_failfast():
    """The first bad row is an error, which names its entry and the cure."""
    with pytest.raises(CorruptEntryError, match=r"as it says.*`mode`") as caught:
        rows(Mode.FAILFAST)
    assert caught.value.message_id == "7:0"


@pytest.mark.parametrize("type_", [pa.binary(), pa.string()])
def test_permissive(type_: pa.DataType):
    """Bad rows are NULL, also those whose key is no base64; their bytes are kept."""
    found = rows(Mode.PERMISSIVE, type_)
    assert [row["pair"] for row in found] == [A, None, None, B, None, D]
    kept = [row["bad"] for row in found]
    expected = [None, b"bad", None, None, b"c", None]
    if pa.types.is_string(type_):
        expected = [one and one.decode() for one in expected]
    assert kept == expected


def test_dropmalformed(caplog: pytest.LogCaptureFixture):
    """They are not there, in no column; one line says so."""
    with caplog.at_level(logging.WARNING):
        found = rows(Mode.DROPMALFORMED, pa.binary())
    assert [row["pair"] for row in found] == [A, None, B, D]
    assert {row["bad"] for row in found} == {None}
    assert len(caplog.records) == 1
    assert "7:0" in caplog.text
