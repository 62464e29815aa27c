# SPDX-License-Identifier: Apache-2.0
"""Fields of options hold values of the types that they are declared with."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, get_type_hints

import pytest

from pulsar_spark.options import ClientOptions, ReadOptions, WriteOptions
from spark_topics.options.spec import specs_by_field


@pytest.mark.parametrize("model", [ClientOptions, ReadOptions, WriteOptions])
def test_types_are_those_of_values(model: Any) -> None:
    """What a default becomes is what the field says that it holds."""
    hints = get_type_hints(model)
    for name, specs in specs_by_field(model).items():
        if len(specs) == 1 and specs[0].default is not None:
            value = specs[0].default_value
            default = next(f.default for f in fields(model) if f.name == name)
            assert value == default
            if hints[name] in (bool, int, float, str):
                assert type(value) is hints[name], name
