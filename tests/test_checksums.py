# SPDX-License-Identifier: Apache-2.0
"""CRC-32C without what else the package ``crc32c`` imports."""

from __future__ import annotations

import subprocess
import sys

import crc32c
from hypothesis import given
from hypothesis import strategies as st

from pulsar_spark import checksums


@given(st.binary(max_size=5000), st.integers(0, 2**32 - 1))
def test_it_computes_what_the_package_does(data: bytes, before: int) -> None:
    """From the start, and on from an earlier checksum."""
    assert checksums.crc32c(data) == crc32c.crc32c(data)
    assert checksums.crc32c(memoryview(data), before) == crc32c.crc32c(data, before)


def test_no_package_searches_for_its_version() -> None:
    """The extension module alone is loaded: that takes a tenth of the time."""
    code = (
        "import sys; before = set(sys.modules); import pulsar_spark.wire.frames; "
        "found = {'crc32c', 'importlib.metadata', 'email'} & ({*sys.modules} - before)"
        "; assert not found, found"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_a_package_without_the_extension() -> None:
    """The function is the one of the package."""
    assert checksums.load(()) is crc32c.crc32c
