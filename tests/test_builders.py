# SPDX-License-Identifier: Apache-2.0
"""Tests of `pulsar_spark.builders`: each option has a field, and arrives as text."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import pulsar_spark
from pulsar_spark.options import OPTIONS, parse_read_options, parse_write_options
from spark_topics.options.spec import OptionSpec, Scope
from tests.support.builders import field_name
from tests.support.products import ROOT

CLASSES = {
    Scope.READ: pulsar_spark.ReadOptions,
    Scope.WRITE: pulsar_spark.WriteOptions,
}
PLACE = {"service_url": "pulsar://localhost:6650", "topic": "t"}


@pytest.mark.parametrize("scope", CLASSES, ids=["read", "write"])
def test_each_option_has_a_field(scope: Scope) -> None:
    """And no two options share a field."""
    names = [spec.name for spec in OPTIONS if spec.available and spec.scope & scope]
    its_fields = fields(CLASSES[scope])
    assert sorted(f.metadata["option"] for f in its_fields) == sorted(names)
    assert len({f.name for f in its_fields}) == len(names)
    assert all(getattr(CLASSES[scope](), f.name) is None for f in its_fields)


@pytest.mark.parametrize(
    "spec", [s for s in OPTIONS if s.available and s.default], ids=lambda s: s.name
)
def test_each_default_can_be_given(spec: OptionSpec[Any]) -> None:
    """As the text that the documents show."""
    for scope, kind in CLASSES.items():
        if spec.scope & scope:
            given = kind(**{field_name(spec.name): spec.default})
            assert given.as_dict() == {spec.name: spec.default}


def test_values_become_text() -> None:
    """As Spark wants them, and as they are read."""
    read = pulsar_spark.ReadOptions(
        **PLACE,
        fail_on_data_loss=False,
        max_partitions=7,
        metadata_columns=["__key", "__position"],
        starting_offsets={"t": "12:3"},
        consumer_properties={"team": "billing"},
    )
    assert read.as_dict() == {
        "service.url": "pulsar://localhost:6650",
        "topic": "t",
        "failOnDataLoss": "false",
        "maxPartitions": "7",
        "metadataColumns": "__key,__position",
        "startingOffsets": '{"t": "12:3"}',
        "pulsar.consumer.properties": '{"team": "billing"}',
    }
    options = parse_read_options(read.as_dict())
    assert options.fail_on_data_loss is False
    assert options.metadata_columns == ("__key", "__position")
    write = pulsar_spark.WriteOptions(**PLACE, producer_compression_type="ZSTD")
    parse_write_options(write.as_dict(), streaming=False)


def test_what_reads_and_writes_share() -> None:
    """One object for the connection goes before either."""
    client = pulsar_spark.ClientOptions(**PLACE)
    for kind in CLASSES.values():
        assert issubclass(kind, pulsar_spark.ClientOptions)
        assert kind(**PLACE).as_dict() == client.as_dict()


def test_no_secret_is_shown() -> None:
    """Not even where a program prints what it reads by."""
    secret = "token:s3cr3t"
    options = pulsar_spark.ReadOptions(**PLACE, auth_params=secret)
    assert "s3cr3t" not in f"{options} {options!r}"
    assert "auth_params" in repr(options)


def test_types_are_checked(tmp_path: Path) -> None:
    """By mypy, as in an editor: names and types of options.

    What mypy knows of our modules stays, and is checked against them the next time.
    """
    right = ["max_partitions=7", "fail_on_data_loss=False"]
    wrong = ["max_partition=7", "max_partitions='many'", "fail_on_data_loss='no'"]
    calls = [f"pulsar_spark.ReadOptions({argument})" for argument in right + wrong]
    job = tmp_path / "job.py"
    job.write_text("\n".join(["import pulsar_spark", *calls]) + "\n")
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--cache-dir", ROOT / "build" / "mypy", job],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    lines = {int(n) for n in re.findall(r"job\.py:(\d+): error", done.stdout)}
    assert lines == {4, 5, 6}, done.stdout


def test_there_is_nothing_else() -> None:
    """A name that the package does not have is the usual error."""
    with pytest.raises(AttributeError, match="no attribute 'Options'"):
        pulsar_spark.Options  # noqa: B018 - it is asked for
