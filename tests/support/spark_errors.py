# SPDX-License-Identifier: Apache-2.0
"""What a user sees of an exception that Spark raises, and how much."""

from __future__ import annotations

import traceback

from pulsar_spark import condition_of

#: A batch query that fails shows at most so many lines.
MOST_LINES = 25

#: A stream's error has Spark's own plan of the query behind the sentence.
MOST_LINES_OF_A_STREAM = 45


def expect(error: Exception, *parts: str) -> None:
    """Check that each of the parts is in the text of an error.

    An error of ours, whose condition in brackets is the first part, is readable, too.
    """
    text = str(error)
    missing = [part for part in parts if part not in text]
    assert not missing, f"{missing} not in:\n{text}"
    if parts[0].startswith("["):
        _expect_readable(error, parts[0])


def _expect_readable(error: Exception, condition: str) -> None:
    """Few lines, the last of them ours; a program can tell which error it is."""
    shown = "".join(traceback.format_exception(error))
    lines = [line for line in shown.splitlines() if line.strip()]
    is_of_stream = "StreamingQueryException" in type(error).__name__
    assert len(lines) <= (MOST_LINES_OF_A_STREAM if is_of_stream else MOST_LINES), shown
    assert f"[{condition_of(error)}]" == condition, shown
    last = next(n for n, line in enumerate(lines) if f"{condition} " in line)
    assert not any('File "' in line for line in lines[last:]), shown
    assert "source/plan" not in shown
