# SPDX-License-Identifier: Apache-2.0
"""The generated parts of README.md, which ``make generate-docs`` writes."""

from __future__ import annotations

from spark_topics.options.document import options_table_markdown
from tests.support.docs import errors_table
from ydb_spark import errors
from ydb_spark.columns import COLUMNS
from ydb_spark.options.parse import OPTIONS


def parts() -> dict[str, str]:
    """Return the text of each part by the name of its markers."""
    return {
        "ydb-options": options_table_markdown(OPTIONS),
        "ydb-columns": _columns(),
        "ydb-errors": errors_table(errors),
    }


def _columns() -> str:
    """Write the columns of YDB's topics as a Markdown table."""
    lines = ["| column | read as | holds | written |", "|---|---|---|---|"]
    for column in COLUMNS:
        read, write = column.read, column.write
        cells = (
            f"`{column.name}`",
            f"`{read.type.value}`" if read else "-",
            read.doc if read else "-",
            write.doc if write else "left out",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)
