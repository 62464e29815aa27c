"""Puts generated tables between their markers in README.md.

python -m tests.support.readme               the options
python -m tests.support.readme bench.md      and what a file holds, as the figures
"""

from __future__ import annotations

import sys
from pathlib import Path

from pulsar_spark.options import options_table_markdown

README = Path(__file__).parents[2] / "README.md"


def replace_between(text: str, name: str, content: str) -> str:
    """The text with ``content`` between the markers of this name.

    Raises:
        ValueError: A marker is missing.
    """
    begin, end = f"<!-- {name}: begin -->\n", f"<!-- {name}: end -->\n"
    first, last = text.index(begin) + len(begin), text.index(end)
    return f"{text[:first]}\n{content.strip()}\n\n{text[last:]}"


def main(*figures: str) -> None:
    """Rewrites README.md."""
    text = replace_between(README.read_text(), "options", options_table_markdown())
    for file in figures:
        text = replace_between(text, "bench", Path(file).read_text())
    README.write_text(text)


if __name__ == "__main__":
    main(*sys.argv[1:])
