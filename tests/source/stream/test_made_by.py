# SPDX-License-Identifier: Apache-2.0
"""Tests of `pulsar_spark.source.stream.made_by`."""

from __future__ import annotations

import getpass
import platform

import pytest

import pulsar_spark
from pulsar_spark.source.stream.made_by import made_by


@pytest.mark.parametrize(
    ("given", "application"),
    [
        ({}, None),
        ({"SPARK_APPLICATION_ID": "spark-7"}, "spark-7"),
        ({"CONTAINER_ID": "container_7_01"}, "container_7_01"),
    ],
)
def test_what_is_known(given: dict[str, str], application: str | None) -> None:
    """The machine, the user, the version, and what a resource manager says."""
    properties = made_by(given)
    assert properties.get("spark.application") == application
    assert properties["spark.host"] == platform.node()
    assert properties["spark.connector"] == f"pulsar-spark {pulsar_spark.__version__}"


def test_a_user_without_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container that runs by a number."""

    def fail() -> str:
        raise KeyError("getpwuid(): uid not found: 1001")

    monkeypatch.setattr(getpass, "getuser", fail)
    assert "spark.user" not in made_by({})


def test_nothing_is_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Brokers keep properties with each cursor."""
    monkeypatch.setattr(platform, "node", lambda: "h" * 10_000)
    assert max(map(len, made_by({}).values())) == 200
