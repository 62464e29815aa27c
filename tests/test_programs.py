# SPDX-License-Identifier: Apache-2.0
"""The names that programs take from the package."""

from __future__ import annotations

import pytest

import pulsar_spark
from pulsar_spark import programs


def test_each_public_name_is_there() -> None:
    """Those that are imported late, too, and ``dir`` shows all."""
    for name in pulsar_spark.__all__:
        assert getattr(pulsar_spark, name) is not None
    assert {*pulsar_spark.__all__} <= {*dir(pulsar_spark)}
    assert {*programs.__all__} <= {*pulsar_spark.__all__}


def test_no_other_name() -> None:
    """A name that is not public is no attribute, even where the module has it."""
    with pytest.raises(AttributeError, match="has no attribute 'annotations_of'"):
        pulsar_spark.annotations_of  # noqa: B018
