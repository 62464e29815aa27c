# SPDX-License-Identifier: Apache-2.0
"""Documentation of options."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from spark_topics.options.spec import OptionSpec, Support


def options_table_markdown(
    options: Sequence[OptionSpec[Any]], *, ignored_prefix: str = "", prefix: str = ""
) -> str:
    """Write a Markdown table of options, and two lists of options without a row.

    Args:
        options: All of them, in the order of the documents.
        ignored_prefix: Beginning of further names that have no effect.
        prefix: Beginning of names that are listed together, by what follows it up to
            the last dot.
    """
    lines = ["| option | default | for | meaning |", "|---|---|---|---|"]
    for spec in options:
        if spec.available:
            names = [f"`{name}`" for name in (spec.name, *spec.aliases)]
            default = f"`{spec.default}`" if spec.default else "none"
            cells = (", ".join(names), default, spec.scope_text, spec.doc)
            lines.append("| " + " | ".join(c.replace("|", "\\|") for c in cells) + " |")
    ignored = _names_by_prefix(options, Support.IGNORED, prefix)
    ignored += [f"- `{ignored_prefix}*`"] if ignored_prefix else []
    refused = _names_by_prefix(options, Support.REFUSED, prefix)
    if ignored:
        lines += ["", "Accepted without effect, with one warning:", "", *ignored]
    if refused:
        lines += ["", "Not supported yet, and refused:", "", *refused]
    return "\n".join(lines) + "\n"


def _names_by_prefix(
    options: Sequence[OptionSpec[Any]], support: Support, together: str
) -> list[str]:
    """List options as bullets: plain names first, then a bullet for each prefix."""
    groups: dict[str, list[str]] = {}
    for spec in options:
        if spec.support is support:
            prefix, dot, name = spec.name.rpartition(".")
            below = bool(together) and prefix.startswith(together)
            group = groups.setdefault(f"`{prefix}{dot}` " if below else "", [])
            group.append(f"`{name if below else spec.name}`")
    return [f"- {prefix}{', '.join(names)}" for prefix, names in groups.items()]
