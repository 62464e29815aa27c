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


@pytest.mark.parametrize("missing", ["ydb", "grpc"])
def test_where_the_extra_is_not_installed(missing: str):
    """Each way to use the source is one error, and registering it is none."""
    code = (
        "import sys;"
        f"sys.modules[{missing!r}] = None;"
        "from pyspark.sql.types import StructType;"
        "from pyspark_ydb_topic import DefaultSource;"
        "source = DefaultSource({});"
        "schema = StructType().add('data', 'binary');"
        "source.schema()\n"
        "for use in (lambda: source.reader(schema),"
        " lambda: source.streamReader(schema),"
        " lambda: source.writer(schema, False),"
        " lambda: source.streamWriter(schema, False)):\n"
        "    try:\n"
        "        use()\n"
        "    except Exception as error:\n"
        "        print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, check=True, timeout=120
    )
    lines = done.stdout.decode().splitlines()
    assert len(lines) == 4
    for line in lines:
        assert line.startswith("[YDB_OPTION]")
        assert "pip install 'pulsar-spark[ydb]'" in line


def test_without_the_sdk():
    """The error names the extra; what else is missing is another matter."""
    with pytest.raises(OptionError, match=r"pulsar-spark\[ydb\]"), needs_sdk():
        raise ModuleNotFoundError(name="ydb")
    with pytest.raises(ModuleNotFoundError), needs_sdk():
        raise ModuleNotFoundError(name="other")
