# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import pytest

from spark_topics.spark.modes import require_append
from tests.spark_topics.numbers import NUMBERS as SYSTEM


@pytest.mark.parametrize(
    ("streaming", "match"),
    [
        (False, r'so mode\("overwrite"\) is not possible: use mode\("append"\)'),
        (True, r'so outputMode\("complete"\) .* use outputMode\("append"\)'),
    ],
)
def test_only_append(streaming: bool, match: str):
    """What would replace rows is an error of the system's own, and says what to ask."""
    require_append(SYSTEM, overwrite=False, streaming=streaming)
    with pytest.raises(SYSTEM.option_error, match=match):
        require_append(SYSTEM, overwrite=True, streaming=streaming)
