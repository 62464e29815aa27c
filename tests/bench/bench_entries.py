# SPDX-License-Identifier: Apache-2.0
"""One entry -> its messages, by codec, beside parsing the messages' metadata alone."""

from __future__ import annotations

import struct
from functools import partial

from pulsar_spark.wire import pulsar_api_pb2 as pb
from pulsar_spark.wire.entries import EntryDecoder
from tests.bench.report import Case, cpu, in_turns
from tests.bench.samples import NONE, Batch, make_batches
from tests.support.settings import range_settings

_CODECS = {"NONE": NONE, "LZ4": pb.LZ4, "ZLIB": pb.ZLIB, "ZSTD": pb.ZSTD}
_CODECS["SNAPPY"] = pb.SNAPPY

#: Entries of each repeat.
_ENTRIES = 120


def parse_only(batches: list[Batch]) -> None:
    """Each metadata parsed by protobuf's own runtime, and dropped."""
    read_size = struct.Struct(">I").unpack_from
    single = pb.SingleMessageMetadata()
    parse = single.ParseFromString
    for batch in batches:
        payload = batch.payload
        position = 0
        for _ in range(batch.rows):
            start = position + 4
            end = start + read_size(payload, position)[0]
            parse(payload[start:end])
            position = end + single.payload_size


def run(repeats: int) -> list[Case]:
    """Every codec."""
    plain = make_batches(8, 100)
    cases = []
    for name, codec in _CODECS.items():
        batches = make_batches(8, 100, codec=codec)
        seconds = in_turns(
            {
                "parse": cpu(partial(_each, plain)),
                "entries": cpu(partial(_decode, batches)),
            },
            max(repeats, 5),
        )
        rows = _ENTRIES * plain[0].rows
        cases.append(
            Case(
                "entries",
                name,
                rows,
                rows * 100,
                seconds["entries"],
                "upb parse alone",
                seconds["parse"],
            )
        )
    return cases


def _each(batches: list[Batch]) -> None:
    for _ in range(_ENTRIES // len(batches)):
        parse_only(batches)


def _decode(batches: list[Batch]) -> None:
    usual = range_settings()
    decoder = EntryDecoder(table_rows=usual.table_rows, table_bytes=usual.table_bytes)
    for number in range(_ENTRIES):
        for _ in decoder.pieces(batches[number % len(batches)].stored(number)):
            pass
