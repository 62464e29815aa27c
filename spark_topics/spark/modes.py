# SPDX-License-Identifier: Apache-2.0
"""How Spark asks for rows to be written: topics only grow."""

from __future__ import annotations

from spark_topics.system import System


def require_append(system: System, *, overwrite: bool, streaming: bool) -> None:
    """Check that rows are to be added.

    Args:
        system: Where to.
        overwrite: Whether they are to replace what is there, as Spark asks of a writer.
        streaming: Whether a stream asks.

    Raises:
        OptionError: They are to replace it; of the system's own class.
    """
    if overwrite:
        mode = "outputMode" if streaming else "mode"
        asked = "complete" if streaming else "overwrite"
        raise system.option_error(
            f'Rows in a {system.name} topic cannot be replaced, so {mode}("{asked}") is'
            f' not possible: use {mode}("append").'
        )
