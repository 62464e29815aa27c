# SPDX-License-Identifier: Apache-2.0
"""Group rows by topic, by key, and by what may share an entry. Pure Arrow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from pulsar_spark.arrow.encode import EncodedRows
from pulsar_spark.columns import KEY
from pulsar_spark.errors import BadRowError, OptionError
from pulsar_spark.topics import TopicName


def rows_by_topic(
    rows: EncodedRows, first_row: int
) -> dict[TopicName, pa.Int64Array | None]:
    """Return the row indices of each topic, None for all rows.

    Args:
        rows: Rows that name their topics.
        first_row: The number of the first of them in the task, for messages.

    Raises:
        BadRowError: A row names no topic, or something else.
    """
    assert rows.topics is not None
    return topics_of(rows.topics, first_row)


def topics_of(named: pa.Array, first_row: int) -> dict[TopicName, pa.Int64Array | None]:
    """Return the row indices of each topic, as ``rows_by_topic`` does.

    Args:
        named: What each row names.
        first_row: The number of the first of them in the task, for messages.

    Raises:
        BadRowError: A row names no topic, or something else.
    """
    if named.null_count:
        is_null = named.is_null()
        row = first_row + pc.index(is_null, pa.scalar(True)).as_py()
        raise BadRowError(
            f"Row {row} of a task has no topic: its column `__topic` is NULL. Fill it, "
            "leave such rows out, or set the option `topic`, which holds for all rows."
        )
    # As bytes: Spark's strings may hold what is no text.
    names = named.cast(pa.large_binary()).dictionary_encode()
    topics = [_topic_name(name) for name in names.dictionary.to_pylist()]
    # One topic may be named in several ways.
    numbers = {topic: number for number, topic in enumerate(dict.fromkeys(topics))}
    if len(numbers) == 1:
        return {topics[0]: None}
    of_names = pa.array([numbers[topic] for topic in topics], pa.int32())
    of_rows = of_names.take(names.indices)
    indices: dict[TopicName, pa.Int64Array | None] = {}
    for topic, number in numbers.items():
        is_its_own = pc.equal(of_rows, pa.scalar(number, pa.int32()))
        indices[topic] = pc.indices_nonzero(is_its_own).cast(pa.int64())
    return indices


def _topic_name(name: bytes) -> TopicName:
    try:
        return TopicName.parse(str(name, "utf-8"))
    except UnicodeDecodeError:
        raise BadRowError(
            f"`__topic` of a row: {name[:100]!r} is not text in UTF-8."
        ) from None
    except OptionError as error:
        raise BadRowError(f"`__topic` of a row: {error.message}") from None


# Numbers are scalars of pyarrow: others it converts slowly, see ``arrow.encode``.


def groups_by_key(partitions: pa.Array, rows: EncodedRows) -> tuple[pa.Array, int]:
    """Return a number for the topic partition and key of each row.

    The ordering key, where a row has one, else the key; rows without either share one.

    Returns:
        The number of each row's pair; and the factor: a number divided by it is the
        topic partition.
    """
    key_columns = [
        column.cast(pa.binary())
        for column in (rows.ordering_keys, rows.keys)
        if column is not None
    ]
    if not key_columns:
        return partitions, 1
    keys = pc.fill_null(pc.coalesce(*key_columns), b"").dictionary_encode()
    count = len(keys.dictionary)
    factor = pa.scalar(count, pa.int64())
    numbers = pc.multiply(partitions.cast(pa.int64()), factor)
    return pc.add(numbers, keys.indices.cast(pa.int64())), count


def take_numbers(numbers: Sequence[int], indices: pa.Int64Array) -> Sequence[int]:
    """Return the numbers at some indices.

    Args:
        numbers: A range, or what this function returned.
        indices: Which of them.
    """
    if isinstance(numbers, range):
        return _view(pc.add(indices, pa.scalar(numbers.start, pa.int64())))
    every = pa.Array.from_buffers(
        pa.int64(), len(numbers), [None, pa.py_buffer(numbers)]
    )
    return _view(every.take(indices))


def _view(numbers: pa.Int64Array) -> Sequence[int]:
    """Return the numbers, without an object for each."""
    view = memoryview(numbers.buffers()[1]).cast("q")
    return view[numbers.offset : numbers.offset + len(numbers)]


def up_to_large_rows(
    rows: EncodedRows, limit_bytes: int
) -> Iterator[tuple[EncodedRows, bool]]:
    """Cut rows after each that is larger than a limit.

    Yields:
        Rows that follow each other, and whether the last of them is such a large one.
    """
    sizes = pc.binary_length(rows.messages)
    limit = pa.scalar(limit_bytes, sizes.type)
    large = pc.indices_nonzero(pc.greater(sizes, limit)).to_pylist()
    if not large:
        yield rows, False
        return
    begin = 0
    for end in [row + 1 for row in large]:
        yield rows.take(pa.array(range(begin, end), pa.int64())), True
        begin = end
    if begin < len(rows):
        yield rows.take(pa.array(range(begin, len(rows)), pa.int64())), False


def runs_of_entries(
    rows: EncodedRows, start: int, end: int, *, batching: bool
) -> Iterator[tuple[int, int, bool]]:
    """Yield runs of rows that may share an entry, and of rows that must not.

    A batch has one time of delivery, so a row that sets its own goes alone.

    Args:
        rows: Encoded rows.
        start: The first of them.
        end: The first that is not one of them.
        batching: Whether rows may share an entry at all.

    Yields:
        The first row of a run, the first after it, and whether each of them must be
        alone in its entry.
    """
    if not batching:
        if start < end:
            yield start, end, True
        return
    delayed: Iterable[int] = ()
    if rows.deliver_at_ms is not None:
        valid = rows.deliver_at_ms.slice(start, end - start).is_valid()
        delayed = [start + row for row in pc.indices_nonzero(valid).to_pylist()]
    for row in delayed:
        if start < row:
            yield start, row, False
        yield row, row + 1, True
        start = row + 1
    if start < end:
        yield start, end, False


def with_keys_as_bytes(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows with text keys converted to bytes."""
    index = batch.schema.get_field_index(KEY)
    if index < 0:
        return batch
    columns = batch.columns
    columns[index] = columns[index].cast(pa.binary())
    schema = batch.schema.set(index, pa.field(KEY, pa.binary()))
    return pa.RecordBatch.from_arrays(columns, schema=schema)
