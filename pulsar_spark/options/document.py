# SPDX-License-Identifier: Apache-2.0
"""The options as the documents show them."""

from __future__ import annotations

from pulsar_spark.options.parse import OPTIONS
from pulsar_spark.options.spec import Support
from pulsar_spark.options.unsupported import ADMIN_PREFIX


def options_table_markdown() -> str:
    """Write the options as a Markdown table, and those without a row in two lists."""
    lines = ["| option | default | for | meaning |", "|---|---|---|---|"]
    for spec in OPTIONS:
        if spec.available:
            names = [f"`{name}`" for name in (spec.name, *spec.aliases)]
            default = f"`{spec.default}`" if spec.default else "none"
            cells = (", ".join(names), default, spec.scope_text, spec.doc)
            lines.append("| " + " | ".join(c.replace("|", "\\|") for c in cells) + " |")
    lines += ["", "Accepted without effect, with one warning:", ""]
    lines += [*_names_by_prefix(Support.IGNORED), f"- `{ADMIN_PREFIX}*`"]
    lines += ["", "Not supported yet, and refused:", ""]
    lines += _names_by_prefix(Support.REFUSED)
    return "\n".join(lines) + "\n"


def _names_by_prefix(support: Support) -> list[str]:
    """List options as bullets: one for plain names, one for each prefix."""
    groups: dict[str, list[str]] = {}
    for spec in OPTIONS:
        if spec.support is support:
            prefix, dot, name = spec.name.rpartition(".")
            below = prefix.startswith("pulsar.")
            group = groups.setdefault(f"`{prefix}{dot}` " if below else "", [])
            group.append(f"`{name if below else spec.name}`")
    return [f"- {prefix}{', '.join(names)}" for prefix, names in groups.items()]
