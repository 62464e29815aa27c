# SPDX-License-Identifier: Apache-2.0
"""The generated parts of README.md, which ``make generate-docs`` writes."""

from __future__ import annotations

from spark_topics.options.document import options_table_markdown
from tests.support.column_tables import columns_of_a_read, columns_of_a_write
from tests.support.docs import errors_table
from tubemq_spark import columns, errors
from tubemq_spark.options.read import READ_SPECS
from tubemq_spark.options.write import WRITE_SPECS


def parts() -> dict[str, str]:
    """Return the text of each part by the name of its markers."""
    return {
        "read-options": options_table_markdown(READ_SPECS),
        "read-columns": columns_of_a_read(columns.READ),
        "write-options": options_table_markdown(WRITE_SPECS),
        "write-columns": columns_of_a_write(columns.WRITE),
        "errors": errors_table(errors),
    }
