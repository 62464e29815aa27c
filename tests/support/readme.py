"""Puts generated tables between their markers in README.md.

The options, and the figures of the runs that ``make bench ARGS=--save`` and
``make bench-peer ARGS=--save`` left in docs/.
"""

from __future__ import annotations

from pathlib import Path

from pulsar_spark.options import options_table_markdown
from tests.bench.report import Document

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"


def replace_between(text: str, name: str, content: str) -> str:
    """The text with ``content`` between the markers of this name.

    Raises:
        ValueError: A marker is missing.
    """
    begin, end = f"<!-- {name}: begin -->\n", f"<!-- {name}: end -->\n"
    first, last = text.index(begin) + len(begin), text.index(end)
    return f"{text[:first]}\n{content.strip()}\n\n{text[last:]}"


def main() -> None:
    """Rewrites README.md."""
    text = replace_between(README.read_text(), "options", options_table_markdown())
    for name in ("bench", "bench-peer"):
        file = ROOT / "docs" / f"{name}.json"
        if file.exists():
            text = replace_between(text, name, Document.read(file).markdown())
    README.write_text(text)


if __name__ == "__main__":
    main()
