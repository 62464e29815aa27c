# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType

import pytest

from pulsar_spark.loops import fact, json_text, protobuf_op


@pytest.mark.parametrize("module", [fact, json_text, protobuf_op])
def test_the_same_in_c(module: ModuleType) -> None:
    """The enums of a .pxd have the names and numbers of the module, and no others."""
    text = Path(module.__file__ or "").with_suffix(".pxd").read_text()
    found: dict[str, int] = {}
    for enum in text.split("cdef enum:\n")[1:]:
        following = 0
        for name, value in re.findall(r"^    (\w+)(?: = (\d+))?$", enum, re.MULTILINE):
            found[name] = int(value) if value else following
            following = found[name] + 1
    facts = {name: value for name, value in vars(module).items() if type(value) is int}
    assert found == facts
