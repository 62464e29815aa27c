# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import LongType, StructField, StructType

from spark_topics.options.spec import Scope
from tests.spark_topics.numbers import OptionError
from tests.spark_topics.spark.number_source import NumberDataSource, options_of

SCHEMA = StructType([StructField("number", LongType())])


def test_rows_are_only_added(tmp_path: Path) -> None:
    """No data source of topics has to ask: what would replace rows is refused."""
    source = NumberDataSource({"folder": str(tmp_path)})
    with pytest.raises(OptionError, match="use mode"):
        source.writer(SCHEMA, True)
    with pytest.raises(OptionError, match="use outputMode"):
        source.streamWriter(SCHEMA, True)


@pytest.mark.parametrize("partition", [None, InputPartition(None)])
def test_an_empty_plan(tmp_path: Path, partition: InputPartition | None) -> None:
    """Releases of Spark make a task of it in two ways; it has no rows."""
    reader = NumberDataSource({"folder": str(tmp_path)}).reader(SCHEMA)
    assert reader.partitions() == []
    assert list(reader.read(partition)) == []


def test_nothing_came(tmp_path: Path) -> None:
    """As of a table in Spark's catalog: what to do is said, and only then."""
    hint = "CREATE TEMPORARY VIEW"
    with pytest.raises(OptionError, match=rf"folder is required\..*{hint}") as caught:
        NumberDataSource({}).reader(SCHEMA)
    assert len(caught.value.problems) == 2
    source = NumberDataSource({"folder": str(tmp_path), "minPartitions": "0"})
    with pytest.raises(OptionError) as caught:
        source.reader(SCHEMA)
    assert hint not in str(caught.value)
    with pytest.raises(OptionError) as caught:
        options_of({}, Scope.BATCH)
    assert hint not in str(caught.value)


def test_that_is_asked_first() -> None:
    """Whatever else is wrong: an option is missing here, which is told then."""
    source = NumberDataSource({})
    for make in source.writer, source.streamWriter:
        with pytest.raises(OptionError, match="cannot be replaced"):
            make(SCHEMA, True)
        with pytest.raises(OptionError, match="folder is required"):
            make(SCHEMA, False)
