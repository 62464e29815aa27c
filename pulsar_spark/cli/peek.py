# SPDX-License-Identifier: Apache-2.0
"""``peek``: the last messages of a topic, decoded as a read would."""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa

from pulsar_spark.arrow.schema import arrow_schema
from pulsar_spark.cli.arguments import DONE, add_options, given_read
from pulsar_spark.cli.output import say, table
from pulsar_spark.client.pool import shared_pool
from pulsar_spark.columns import VALUE
from pulsar_spark.errors import OptionError
from pulsar_spark.options import ReadOptions, canonical_name, parse_read_options
from pulsar_spark.source.plan.discovery import at_one_cluster
from pulsar_spark.source.plan.query_schema import value_columns_of
from pulsar_spark.source.plan.survey import parts_from_end
from pulsar_spark.source.pulsar_source import PulsarSource, load_schema

#: A cell of the table shows so many characters.
_CELL = 60


def add(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "peek",
        help="show the last messages of a topic, decoded",
        description="Show the last messages of each topic partition, with the columns"
        " that a read of\nthe topic has. A reader that is not durable reads them;"
        " nothing is left in the\ncluster. Values that do not fit the schema are NULL,"
        " unless mode says otherwise.",
        epilog="example:\n  pulsar-spark peek -o service.url=pulsar://localhost:6650"
        " -o topic=public/default/orders -n 3",
    )
    parser.add_argument(
        "-n",
        "--messages",
        type=int,
        default=5,
        metavar="N",
        help="messages of each topic partition, 5 by default, 1000 at most",
    )
    add_options(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    if not 0 < arguments.messages <= 1000:
        raise OptionError("--messages must be between 1 and 1000.")
    texts = given_read(arguments)
    names = set(map(canonical_name, texts))
    if "mode" not in names:
        texts = {**texts, "mode": "PERMISSIVE"}
    if "metadataColumns" not in names:
        texts = {**texts, "metadataColumns": "__position,__publishTime,__key"}
    options = replace(
        at_one_cluster(parse_read_options(texts)),
        # Each topic partition has its own last messages.
        min_partitions=None,
        max_partitions=None,
        max_records_per_partition=None,
        # There is no such column, so a field may have any name.
        corrupt_record_column="",
    )
    rows = list(_last_rows(options, arguments.messages))
    if arguments.json:
        say(json.dumps(_finite(rows), indent=2, default=_text))
    elif rows:
        names_shown = list(rows[0])
        cells = [[_cell(row[name]) for name in names_shown] for row in rows]
        say(table(names_shown, cells))
    else:
        say("No message.")
    return DONE


def _last_rows(options: ReadOptions, count: int) -> Iterator[dict[str, Any]]:
    """Yield the last rows of each topic partition, in order."""
    schema = load_schema(options)
    values = value_columns_of(schema)
    metadata = arrow_schema(options.metadata_columns)
    fields = [pa.field(VALUE, pa.binary())] if values is None else list(values)
    columns = pa.schema([*metadata, *fields])
    source = PulsarSource(options, columns, schema)
    pool = shared_pool(options.client)
    for task in source.plan():
        (range_,) = task.ranges
        rows: list[dict[str, Any]] = []
        # Most entries hold a message at least. Chunks hold less, and markers nothing.
        for part in parts_from_end(pool, options, range_, count):
            part_task = replace(task, ranges=(part,))
            before: list[dict[str, Any]] = []
            for batch in source.read(part_task, columns, streaming=False):
                # Only the last ones are kept, however many an entry holds.
                last = batch.slice(max(0, len(batch) - count))
                before = (before + last.to_pylist())[-count:]
            rows = (before + rows)[-count:]
            if len(rows) == count:
                break
        yield from rows


def _finite(value: Any) -> Any:
    """Return a value with texts for numbers that JSON does not have, as Spark's JSON.

    They are ``"NaN"``, ``"Infinity"`` and ``"-Infinity"``.
    """
    if isinstance(value, dict):
        return {name: _finite(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return json.dumps(value)
    return value


def _text(value: Any) -> str:
    """Return bytes as text where they are text, and as hexadecimal digits if not."""
    if isinstance(value, bytes):
        try:
            text = value.decode()
        except UnicodeDecodeError:
            return f"0x{value.hex()}"
        return text if text.isprintable() else f"0x{value.hex()}"
    return str(value)


def _cell(value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, dict) and set(value) == {"ledgerId", "entryId", "batchIndex"}:
        numbers = [n for n in value.values() if n >= 0]
        text = ":".join(map(str, numbers))
    elif isinstance(value, (dict, list, tuple)):
        text = json.dumps(value, default=_text)
    else:
        text = _text(value)
    return text if len(text) <= _CELL else f"{text[: _CELL - 3]}..."
