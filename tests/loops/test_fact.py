# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import re
from pathlib import Path

from pulsar_spark.loops import fact


def test_the_same_in_c() -> None:
    """The enums of fact.pxd have the names and numbers of fact.py, and no others."""
    text = Path(fact.__file__).with_suffix(".pxd").read_text()
    found: dict[str, int] = {}
    for enum in text.split("cdef enum:\n")[1:]:
        following = 0
        for name, value in re.findall(r"^    (\w+)(?: = (\d+))?$", enum, re.MULTILINE):
            found[name] = int(value) if value else following
            following = found[name] + 1
    facts = {name: value for name, value in vars(fact).items() if name.isupper()}
    assert found == facts
