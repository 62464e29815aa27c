# SPDX-License-Identifier: Apache-2.0
"""Checksums by the extra and by the standard library."""

from __future__ import annotations

import importlib.util
import sys
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tubemq_spark.wire import checksums


@given(st.binary(max_size=5000))
def test_the_extra_computes_what_the_standard_library_does(data: bytes):
    assert checksums.crc32 is not zlib.crc32
    assert checksums.crc32(memoryview(data)) == zlib.crc32(data)


def test_the_checksum_of_a_captured_message():
    assert checksums.checksum(b"hi") == 1486039724


def test_the_highest_bit_is_left_out():
    data = b"b"
    assert zlib.crc32(data) == 0x71BEEFF9
    assert checksums.checksum(data) == 0x71BEEFF9
    assert zlib.crc32(b"a") == 0xE8B7BE43
    assert checksums.checksum(b"a") == 0x68B7BE43


def test_it_works_without_the_extra(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "isal.isal_zlib", None)
    spec = importlib.util.find_spec(checksums.__name__)
    assert spec is not None
    assert spec.loader is not None
    without = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(without)
    assert without.crc32 is zlib.crc32
    assert without.checksum(b"a") == checksums.checksum(b"a")
