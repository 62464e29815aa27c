# SPDX-License-Identifier: Apache-2.0
"""The table of columns: what follows from it, and that it is the only one."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from pulsar_spark.arrow.message_columns import COLUMN_SOURCES
from pulsar_spark.columns import COLUMNS, METADATA_COLUMNS_ALL, WRITE

ROOT = Path(__file__).parent.parent

#: What it takes to add a column, file by file: the text to find, and what to put before
#: it. That is its row, what a read makes it of, and what writes its field.
MADE_UP = {
    "columns.py": (
        '    Column("__producerName", ',
        """\
    Column(
        "__number",
        Read(ColumnType.BIGINT, never_null=True),
        Write(10, (ColumnType.INT,), ""),
    ),
""",
    ),
    "arrow/message_columns.py": (
        '    "__index": ',
        '    "__number": of_messages(_sequence_ids),\n',
    ),
    "arrow/encode.py": (
        "    _is_null_fields,\n",
        '    lambda rows: [_made(rows.columns["__number"], _varint_after(0x40))],\n',
    ),
}

#: Writes the column, and reads what was written.
USE = """
import pyarrow as pa
from pyspark.sql.types import BinaryType, IntegerType, StructType

from pulsar_spark.arrow.decode import RecordBatchBuilder
from pulsar_spark.arrow.encode import RowEncoder
from pulsar_spark.arrow.message_columns import COLUMN_SOURCES
from pulsar_spark.options import parse_read_options, parse_write_options
from pulsar_spark.spark.schema import (
    write_columns, checked_arrow_schema, spark_schema
)
from pulsar_spark.wire import pulsar_api_pb2 as pb
from pulsar_spark.wire.entries import EntryDecoder, StoredEntry

where = {"service.url": "pulsar://127.0.0.1:1", "topic": "t"}
written = StructType().add("value", BinaryType()).add("__number", IntegerType())
write_columns(written, parse_write_options(where, streaming=False))
columns = {"value": pa.array([b"a", b"b"]), "__number": pa.array([7, 1 << 20])}
batch = pa.RecordBatch.from_pydict(columns)
rows = RowEncoder(batch.schema).encode(batch)

metadata = pb.MessageMetadata(num_messages_in_batch=2)
(entry,) = EntryDecoder().pieces(StoredEntry(1, 2, metadata, bytes(rows.data)))

options = parse_read_options({**where, "metadataColumns": "__NUMBER"})
schema = checked_arrow_schema(
    spark_schema(("value", *options.metadata_columns)), options
)
builder = RecordBatchBuilder(
    schema, COLUMN_SOURCES, "t", -1, max_rows=9, max_bytes=999
)
assert not list(builder.add(entry))
print(builder.finish().to_pydict())
"""


def test_a_new_column_is_a_row_and_what_makes_it(tmp_path: Path) -> None:
    """Schemas, checks and options know a column of the table without being told."""
    shutil.copytree(
        ROOT / "pulsar_spark",
        tmp_path / "pulsar_spark",
        ignore=shutil.ignore_patterns("*.so", "__pycache__"),
    )
    for file, (before, lines) in MADE_UP.items():
        path = tmp_path / "pulsar_spark" / file
        text = path.read_text()
        assert text.count(before) == 1
        path.write_text(text.replace(before, lines + before))
    found = subprocess.run(
        [sys.executable, "-c", USE],
        cwd=tmp_path,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert found.stdout == "{'value': [b'a', b'b'], '__number': [7, 1048576]}\n"


def test_each_column_is_made_of_something() -> None:
    """There is a source for each metadata column, and for nothing else."""
    assert set(COLUMN_SOURCES) == set(METADATA_COLUMNS_ALL)


def test_names_and_orders() -> None:
    """No column stands twice in a list."""
    names = [column.name for column in COLUMNS]
    assert len(set(names)) == len(names)
    assert [write.order for write in WRITE.values()] == list(range(1, len(WRITE) + 1))
