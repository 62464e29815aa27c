# SPDX-License-Identifier: Apache-2.0
"""Each source file names its licence in its first line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.licence_lines import LICENCE, ROOT, add, missing


def test_all_have_it() -> None:
    """``make format`` adds those that are missing."""
    assert [str(path.relative_to(ROOT)) for path in missing()] == []


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        ("a.py", "", f"# {LICENCE}\n"),
        ("a.pxd", "cdef int a\n", f"# {LICENCE}\ncdef int a\n"),
        ("Makefile", "all:\n", f"# {LICENCE}\nall:\n"),
        ("run", "#!/bin/sh\nmake\n", f"#!/bin/sh\n# {LICENCE}\nmake\n"),
        ("a.proto", "// Ours.\n", f"// {LICENCE}\n// Ours.\n"),
    ],
)
def test_where_it_goes(tmp_path: Path, name: str, before: str, after: str) -> None:
    """It is the first line, in the file's comments, or the second after a shebang."""
    path = tmp_path / name
    path.write_text(before)
    add(path)
    assert path.read_text() == after
