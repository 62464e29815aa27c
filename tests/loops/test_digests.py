# SPDX-License-Identifier: Apache-2.0
"""Digests of rows, in all forms of the kernel."""

from __future__ import annotations

from array import array
from itertools import accumulate
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support import kernels

CELLS = st.lists(st.none() | st.binary(max_size=40), min_size=1, max_size=12)


@pytest.fixture(params=kernels.FORMS, scope="module")
def kernel(request: pytest.FixtureRequest) -> Any:
    """The module in one of its forms."""
    return kernels.load(request.param, "digests")


def bytes_of(kernel: Any, cells: list[bytes | None], *, shift: int = 0) -> list[int]:
    """The digests of rows of one cell each."""
    digests = array("Q", [7] * len(cells))
    bits = sum(1 << (row + shift) for row, cell in enumerate(cells) if cell is not None)
    validity = memoryview(bits.to_bytes((len(cells) + shift) // 8 + 1, "little"))
    offsets = array("q", accumulate((len(cell or b"") for cell in cells), initial=0))
    data = memoryview(b"".join(cell or b"" for cell in cells))
    kernel.add_bytes(memoryview(digests), validity, shift, memoryview(offsets), data)
    return list(digests)


@given(cells=CELLS, shift=st.integers(0, 9))
def test_forms_agree(kernel: Any, cells: list[bytes | None], shift: int) -> None:
    """Also where they take words of 8 bytes at a time."""
    python = kernels.load("python", "digests")
    assert bytes_of(kernel, cells, shift=shift) == bytes_of(python, cells)
    data = memoryview(b"".join((cell or b"").ljust(40, b"\0") for cell in cells))
    nothing = memoryview(b"")
    offsets = memoryview(array("q", range(len(cells) + 1)))
    sums = []
    for form in (python, kernel):
        digests = array("Q", range(len(cells)))
        form.add_fixed(memoryview(digests), nothing, 0, data, 40)
        items = memoryview(digests[:])
        form.add_items(memoryview(digests), nothing, 0, offsets, items)
        sums.append((list(digests), form.total(memoryview(digests))))
    assert sums[0] == sums[1]


def test_cells_that_differ(kernel: Any) -> None:
    """NULL, nothing, zeros, and the same bytes in another order."""
    cells = [None, b"", b"\0", b"\0" * 8, b"\0" * 9, b"\0" * 16, b"\0" * 17]
    cells += [b"a" * 16, b"a" * 15 + b"b", b"b" + b"a" * 15, b"a" * 24, b"a" * 32]
    cells += [b"1" * 8 + b"2" * 8, b"2" * 8 + b"1" * 8]
    digests = bytes_of(kernel, cells)
    assert len(set(digests)) == len(cells)
