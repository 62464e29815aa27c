# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import subprocess
import sys

import pytest

from ydb_spark.errors import OptionError
from ydb_spark.spark.datasource import needs_sdk


def test_registering_touches_no_grpc():
    """The program that registers the source may fork."""
    code = (
        "import sys, pyspark_ydb_topic;"
        "assert pyspark_ydb_topic.DefaultSource.name() == 'ydb_topic';"
        "assert not {'grpc', 'ydb'} & sys.modules.keys()"
    )
    command = [sys.executable, "-c", code]
    subprocess.run(command, check=True, timeout=60)


def test_without_the_sdk():
    """The error names the extra; what else is missing is another matter."""
    with pytest.raises(OptionError, match=r"pulsar-spark\[ydb\]"), needs_sdk():
        raise ModuleNotFoundError(name="ydb")
    with pytest.raises(ModuleNotFoundError), needs_sdk():
        raise ModuleNotFoundError(name="other")
