# SPDX-License-Identifier: Apache-2.0
"""The licence line of each source file: ``make format`` adds those that are missing."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
LICENCE = "SPDX-License-Identifier: Apache-2.0"

_SOURCES = (
    ".ci",
    "docs",
    "examples",
    "proto",
    "pulsar_spark",
    "siblings",
    "spark_topics",
    "tests",
)
_COMMENTS = {
    "Makefile": "#",
    "run": "#",
    ".java": "//",
    ".proto": "//",
    ".pxd": "#",
    ".py": "#",
    ".toml": "#",
}
#: make check-proto compares them with what the generator writes.
_GENERATED = ("pulsar_api_pb2.py", "tubemq_pb2.py")


def missing() -> Iterator[Path]:
    """Yield the files that lack it."""
    paths = [p for p in ROOT.iterdir() if p.is_file()]
    for folder in _SOURCES:
        paths += (ROOT / folder).rglob("*")
    for path in sorted(paths):
        if _comment(path) and path.name not in _GENERATED:
            text = path.read_text()
            if not text.removeprefix(_shebang(text)).startswith(_line(path)):
                yield path


def add(path: Path) -> None:
    """Put it at the head of a file, after a shebang only."""
    text = path.read_text()
    shebang = _shebang(text)
    path.write_text(f"{shebang}{_line(path)}{text.removeprefix(shebang)}")


def _comment(path: Path) -> str:
    return _COMMENTS.get(path.name) or _COMMENTS.get(path.suffix) or ""


def _line(path: Path) -> str:
    return f"{_comment(path)} {LICENCE}\n"


def _shebang(text: str) -> str:
    return text[: text.index("\n") + 1] if text.startswith("#!") else ""


def main() -> None:
    """Add it to each file that lacks it."""
    for path in missing():
        add(path)
        sys.stdout.write(f"{path.relative_to(ROOT)}\n")


if __name__ == "__main__":
    main()
