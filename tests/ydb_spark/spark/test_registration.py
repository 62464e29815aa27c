# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import subprocess
import sys
from importlib import util
from typing import Any

import pytest
from pyspark.sql.types import StructType

from ydb_spark import YdbTopicDataSource
from ydb_spark.errors import OptionError


def test_registering_touches_no_grpc():
    """The program that registers the source may fork."""
    code = (
        "import sys, pyspark_ydb_topic;"
        "assert pyspark_ydb_topic.DefaultSource.name() == 'ydb_topic';"
        "assert not {'grpc', 'ydb'} & sys.modules.keys()"
    )
    command = [sys.executable, "-c", code]
    subprocess.run(command, check=True, timeout=60)


def test_without_the_sdk(monkeypatch: pytest.MonkeyPatch):
    """The error names the extra."""

    def find(name: str) -> Any:
        return None if name == "ydb" else util.find_spec(name)

    monkeypatch.setattr("ydb_spark.spark.datasource.find_spec", find)
    source = YdbTopicDataSource({})
    for call in (source.reader, source.streamReader):
        with pytest.raises(OptionError, match=r"pulsar-spark\[ydb\]"):
            call(StructType())
