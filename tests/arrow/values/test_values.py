# SPDX-License-Identifier: Apache-2.0
"""Values by their schema: how decoders and encoders of values are called."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_spark.arrow.decode import Mode, RecordBatchBuilder
from pulsar_spark.arrow.encode import RowEncoder
from pulsar_spark.arrow.message_columns import COLUMN_SOURCES
from pulsar_spark.arrow.values import (
    Decoded,
    EncodedValues,
    ValueDecoder,
    ValueEncoder,
    ValueRun,
)
from pulsar_spark.arrow.values.raw import RawDecoder, RawEncoder
from pulsar_spark.errors import BadRowError, CorruptEntryError
from pulsar_spark.loops.avro_write import UnfitValueError
from pulsar_spark.wire.entries import Entry, read_stored_entry
from tests.support.entries import decode_entry
from tests.wire import builders
from tests.wire.builders import Outer, Sent

#: Versions of a schema: numbers in big-endian order, and in little-endian order.
BIG, LITTLE = bytes(7) + b"\0", bytes(7) + b"\1"


class Numbers:
    """Decodes numbers of 32 bits of these versions, and notes the runs."""

    columns = ("number", "is_even")
    needs_keys = False

    def __init__(self, *, by_version: bool = True) -> None:
        self.by_version = by_version
        self.runs: list[tuple[int, bytes]] = []

    def added_bytes(self, rows: int, size_bytes: int) -> int:
        """Return 0."""
        del rows, size_bytes
        return 0

    def decode(self, run: ValueRun) -> Decoded:
        """Return the numbers, and which of them are even."""
        self.runs.append((len(run.values), run.schema_version))
        values = run.values.to_pylist()
        bad, reason = list(range(len(values))), "there is no such version"
        if run.schema_version in (BIG, LITTLE):
            bad = [row for row, one in enumerate(values) if one and len(one) != 4]
            reason = "it has not 4 bytes"
        order = "big" if run.schema_version == BIG else "little"
        numbers = [
            None if value is None or row in bad else int.from_bytes(value, order)
            for row, value in enumerate(values)
        ]
        evens = [None if number is None else number % 2 == 0 for number in numbers]
        columns = pa.array(numbers, pa.int64()), pa.array(evens, pa.bool_())
        return Decoded(columns, bad, reason if bad else "")


SCHEMA = pa.schema(
    [("is_even", pa.bool_()), ("__sequenceId", pa.int64()), ("number", pa.int64())]
)


def entry(entry_id: int, version: bytes | None, *values: bytes | None) -> Entry:
    """A batch of these values."""
    outer = Outer(sequence_id=10 * entry_id)
    if version is not None:
        outer = Outer(sequence_id=10 * entry_id, extra=((16, version),))
    data = builders.batch([Sent(value) for value in values], outer)
    return decode_entry(read_stored_entry(7, entry_id, memoryview(data)))


SCHEMA_OF_BAD = SCHEMA.append(pa.field("bad", pa.binary()))


def builder(
    decoder: ValueDecoder | None,
    schema: pa.Schema,
    mode: Mode = Mode.FAILFAST,
    **runs: int,
) -> RecordBatchBuilder:
    """A builder of RecordBatches of any size."""
    return RecordBatchBuilder(
        schema,
        COLUMN_SOURCES,
        "t",
        -1,
        max_rows=1000,
        max_bytes=1 << 20,
        values=decoder,
        mode=mode,
        corrupt_record="bad" if "bad" in schema.names else "",
        **runs,
    )


def test_runs_of_one_version():
    """Entries of one version are decoded together, in order, beside other columns."""
    numbers = Numbers()
    build = builder(numbers, SCHEMA)
    for one in (
        entry(1, BIG, b"\0\0\0\1", None),
        entry(2, BIG, b"\0\0\0\2"),
        entry(3, LITTLE, b"\3\0\0\0"),
        entry(4, BIG),
        entry(5, LITTLE, b"\4\0\0\0"),
        entry(6, BIG, b"\0\0\0\5"),
    ):
        assert not list(build.add(one))
    found = build.finish()
    found.validate(full=True)
    assert found.schema == SCHEMA
    assert numbers.runs == [(4, BIG), (2, LITTLE)]
    assert found["number"].to_pylist() == [1, None, 2, 3, 4, 5]
    assert found["is_even"].to_pylist() == [False, None, True, False, True, False]
    assert found["__sequenceId"].to_pylist() == [10, 10, 20, 30, 50, 60]


VERSIONS = st.sampled_from([BIG, LITTLE, None, b"", b"\x09"])
VALUES = st.sampled_from([None, b"\0\0\0\1", b"\2\0\0\0", b"abc"])


@given(st.lists(st.tuples(VERSIONS, st.lists(VALUES, max_size=4)), max_size=12))
def test_versions_that_alternate(sent: list[tuple[bytes | None, list[bytes | None]]]):
    """Rows of a version are decoded together; all is as if they were not."""
    found: list[Any] = []
    for long_run in (0, 1 << 20):
        numbers = Numbers()
        build = builder(numbers, SCHEMA_OF_BAD, Mode.PERMISSIVE, long_run=long_run)
        for number, (version, values) in enumerate(sent):
            list(build.add(entry(number, version, *values)))
        found.append(build.finish())
        found[-1].validate(full=True)
        try:
            build = builder(Numbers(), SCHEMA, long_run=long_run)
            for number, (version, values) in enumerate(sent):
                list(build.add(entry(number, version, *values)))
            build.finish()
        except CorruptEntryError as error:
            found.append((error.message_id, error.message))
        else:
            found.append(None)
    versions = [version for _, version in numbers.runs]
    assert len(versions) == len(set(versions))
    assert found[:2] == found[2:]


def test_each_record_batch_has_its_own_runs():
    """What was decoded is forgotten; an empty RecordBatch decodes nothing."""
    numbers = Numbers()
    build = builder(numbers, SCHEMA)
    list(build.add(entry(1, BIG, b"\0\0\0\1")))
    build.finish()
    empty = build.finish()
    assert (empty.num_rows, empty.schema) == (0, SCHEMA)
    list(build.add(entry(2, LITTLE, b"\1\0\0\0")))
    build.finish()
    assert numbers.runs == [(1, BIG), (1, LITTLE)]


@pytest.mark.parametrize("versions", [(BIG, LITTLE), (None, b""), (BIG, None)])
def test_without_versions(versions: tuple[bytes | None, bytes | None]):
    """Where the version does not matter, a RecordBatch is one run."""
    raw = RawDecoder()
    calls = []

    class Recorder:
        columns = raw.columns
        by_version = False
        needs_keys = False

        def added_bytes(self, rows: int, size_bytes: int) -> int:
            """Return 0."""
            del rows, size_bytes
            return 0

        def decode(self, run: ValueRun) -> Decoded:
            calls.append((len(run.values), run.schema_version))
            return raw.decode(run)

    build = builder(Recorder(), pa.schema([("value", pa.binary())]))
    for number, version in enumerate(versions):
        list(build.add(entry(number, version, b"a", b"b")))
    assert build.finish()["value"].to_pylist() == [b"a", b"b"] * 2
    assert calls == [(4, b"")]


def test_absent_and_empty_versions_are_one():
    """Both say that no schema was declared."""
    numbers = Numbers()
    build = builder(numbers, SCHEMA)
    list(build.add(entry(1, None, b"a")))
    list(build.add(entry(2, b"", b"b")))
    with pytest.raises(CorruptEntryError):
        build.finish()
    assert numbers.runs[0] == (2, b"")


def test_values_that_are_not_asked_for():
    """They are neither kept in tables nor decoded."""
    numbers = Numbers()
    build = builder(numbers, pa.schema([("__sequenceId", pa.int64())]))
    assert build.new_table().values is None
    list(build.add(entry(1, None, b"no number")))
    assert build.finish().to_pydict() == {"__sequenceId": [10]}
    assert numbers.runs == []
    assert builder(numbers, SCHEMA).new_table().values is not None


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (entry(3, BIG, b"\0\0\0\3", b"123"), "it has not 4 bytes"),
        (entry(3, b"\x09", b"\0\0\0\3"), "there is no such version"),
    ],
)
def test_values_that_do_not_fit(bad: Entry, reason: str):
    """The message is named, and what is wrong with it."""
    build = builder(Numbers(), SCHEMA)
    for one in entry(1, LITTLE, b"\0\0\0\1"), entry(2, BIG, b"\0\0\0\2"), bad:
        list(build.add(one))
    list(build.add(entry(4, BIG, b"\0\0\0\4")))
    with pytest.raises(CorruptEntryError) as caught:
        build.finish()
    assert caught.value.message_id == "7:3"
    assert f"its value does not fit its schema ({reason})" in caught.value.message


class Sums:
    """Encodes two numbers as their sum in text."""

    columns = ("b", "a")

    def encode(self, columns: Sequence[pa.Array]) -> EncodedValues:
        """Return the sums; NULL where a number is."""
        b, a = columns
        if b.null_count:
            first = pc.index(b.is_null(), pa.scalar(True)).as_py()
            raise UnfitValueError(first, "b", "is NULL")
        return EncodedValues(pc.add(a, b).cast(pa.string()).cast(pa.large_binary()))


def test_encoder():
    """The columns of the value are its own; the others are written as ever."""
    batch = pa.RecordBatch.from_pydict(
        {
            "a": pa.array([1, None], pa.int64()),
            "__key": pa.array(["k", None]),
            "b": pa.array([40, 2], pa.int64()),
        }
    )
    typed = RowEncoder(batch.schema, Sums()).encode(batch)
    plain = pa.RecordBatch.from_pydict(
        {"value": pa.array([b"41", None]), "__key": batch["__key"]}
    )
    assert typed.messages == RowEncoder(plain.schema).encode(plain).messages


def test_encoder_and_other_schemas():
    """Columns that it does not know are our own mistake."""
    columns = [("a", pa.int64()), ("b", pa.int64()), ("value", pa.binary())]
    with pytest.raises(AssertionError):
        RowEncoder(pa.schema(columns), Sums())


def test_rows_that_an_encoder_refuses():
    """They are named by their number in the task."""
    batch = pa.RecordBatch.from_pydict(
        {"a": pa.array([1, 2], pa.int64()), "b": pa.array([40, None], pa.int64())}
    )
    with pytest.raises(BadRowError, match="Row 8 of a task: `b` is NULL"):
        RowEncoder(batch.schema, Sums()).encode(batch, 7)


def test_raw_is_one_of_them():
    """Values as bytes go through the same interfaces."""
    decoder: ValueDecoder = RawDecoder()
    encoder: ValueEncoder = RawEncoder()
    assert decoder.columns == encoder.columns == ("value",)
