# SPDX-License-Identifier: Apache-2.0
"""Pulsar's secrets fail with Pulsar's errors, wherever they have travelled."""

from __future__ import annotations

import pickle

import pytest

from pulsar_spark.errors import OptionError
from pulsar_spark.options.secret import Secret, secret


def test_errors_are_pulsars() -> None:
    """When it is given, and when it is read on another node."""
    with pytest.raises(OptionError, match=r"^.PULSAR_OPTION. some.name must name"):
        secret("env:", "some.name")
    one = secret(" env:PULSAR_SPARK_NOT_THERE ", "some.name")
    there = pickle.loads(pickle.dumps(one))  # noqa: S301 - our own bytes
    assert type(there) is Secret
    assert there == one
    with pytest.raises(OptionError, match=r"^.PULSAR_OPTION. some.name names the env"):
        there.read()
