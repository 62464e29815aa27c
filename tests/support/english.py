# SPDX-License-Identifier: Apache-2.0
"""How plainly the code speaks: three figures for each package, with limits.

``make lint`` runs this module. It prints the figures, and where a figure is beyond its
limit, the sentences and names to reword:

- leaning: summaries of docstrings that rest on a bare pronoun, in percent. A reader has
  to search for the thing that such a pronoun means.
- vague: assigned names that do not say what they hold, in percent.
- tics: turns of phrase that the field does not use, in 1,000 words of docstrings.
"""

from __future__ import annotations

import ast
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.products import PRODUCTS

#: The most that a package may have of each figure.
LIMITS = {"leaning": 10.0, "vague": 0.3, "tics": 0.5}

PRONOUNS = re.compile(
    r"\b(its?|itself|they|them|these|those|ones?|others?|another's|whoever|somebody"
    r"|nobody|everybody|so many|so much|as it|what is|what it|where it|all of it"
    r"|the same)\b",
    re.IGNORECASE,
)

TICS = re.compile(
    r"\b(nobody|somebody|everybody|whoever|anew|likewise|by itself|of its own|so many"
    r"|where it|what it|stands|beside|at hand|meanwhile|thereby|hitherto|mend(s|ed)?"
    r"|tells? of)\b",
    re.IGNORECASE,
)

VAGUE = frozenset(
    {"found", "one", "at", "some", "others", "given", "known", "wanted", "told"}
    | {"said", "who", "much", "there"}
)

_WITH_DOCSTRING = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass
class Figures:
    """What was counted in some source code.

    Attributes:
        leaning, vague, tics: The places of each, as lines to print.
        summaries: Number of docstrings.
        names: Number of assignments to names.
        words: Words of docstrings.
    """

    leaning: list[str] = field(default_factory=list)
    vague: list[str] = field(default_factory=list)
    tics: list[str] = field(default_factory=list)
    summaries: int = 0
    names: int = 0
    words: int = 0

    def add(self, source: str, path: str) -> None:
        """Count a module."""
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, _WITH_DOCSTRING):
                self._add_docstring(ast.get_docstring(node) or "", node, path)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                self.names += 1
                if node.id in VAGUE:
                    self.vague.append(f"{path}:{node.lineno}: {node.id}")

    def _add_docstring(self, text: str, node: ast.AST, path: str) -> None:
        if not text:
            return
        place = f"{path}:{getattr(node, 'lineno', 1)}"
        summary = re.split(r"(?<=[.!?])\s|\n\n", text, maxsplit=1)[0]
        self.summaries += 1
        self.words += len(text.split())
        if PRONOUNS.search(summary):
            self.leaning.append(f"{place}: {' '.join(summary.split())}")
        self.tics += [f"{place}: {match[0]}" for match in TICS.finditer(text)]

    @property
    def shares(self) -> dict[str, float]:
        """The figures by their names."""
        return {
            "leaning": 100 * len(self.leaning) / max(self.summaries, 1),
            "vague": 100 * len(self.vague) / max(self.names, 1),
            "tics": 1000 * len(self.tics) / max(self.words, 1),
        }

    @property
    def beyond(self) -> list[str]:
        """The places to reword, of the figures that are beyond their limits."""
        return [
            f"{name}: {place}"
            for name, share in self.shares.items()
            if share > LIMITS[name]
            for place in getattr(self, name)
        ]


def figures_of(package: Path) -> Figures:
    """Measure a package, without generated code."""
    figures = Figures()
    for path in sorted(package.rglob("*.py")):
        if not path.name.endswith("_pb2.py"):
            source = path.read_text(encoding="utf-8")
            figures.add(source, path.relative_to(package.parent).as_posix())
    return figures


def main() -> int:
    """Print the figures; return 1 where a package is beyond a limit."""
    lines: list[str] = []
    to_reword: list[str] = []
    for name, product in PRODUCTS.items():
        figures = figures_of(product.folder / name)
        shares = ", ".join(
            f"{figure} {share:.1f} (at most {LIMITS[figure]:g})"
            for figure, share in figures.shares.items()
        )
        lines.append(f"{name}: {shares}")
        to_reword += figures.beyond
    sys.stdout.write("\n".join([*lines, *to_reword, ""]))
    return bool(to_reword)


if __name__ == "__main__":
    sys.exit(main())
