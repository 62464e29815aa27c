# SPDX-License-Identifier: Apache-2.0
"""Columns that say the same in each row, longer and shorter ones in turn."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from spark_topics.arrow.repeated import Repeated


@pytest.mark.parametrize(
    ("value", "type_"),
    [
        ("topic", pa.string()),
        (7, pa.int32()),
        (None, pa.string()),
        (None, pa.int64()),
        ([], pa.map_(pa.string(), pa.string())),
    ],
)
def test_as_many_rows_as_are_wanted(value: Any, type_: pa.DataType) -> None:
    """The longest so far is cut for the others."""
    repeated = Repeated(pa.scalar(value, type_))
    for count in (3, 0, 1, 5, 2, 5):
        column = repeated.rows(count)
        column.validate(full=True)
        assert column.type == type_
        assert column.to_pylist() == [value] * count
        batch = pa.RecordBatch.from_arrays([column], ["one"])
        sent = pa.ipc.read_record_batch(batch.serialize(), batch.schema)
        assert sent.equals(batch)
