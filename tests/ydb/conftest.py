# SPDX-License-Identifier: Apache-2.0
"""The double, for the tests of itself."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.ydb.service import TopicService


@pytest.fixture
def service() -> Iterator[TopicService]:
    """A service with a topic ``t`` of two partitions and a consumer ``c``."""
    with TopicService() as service:
        service.store.create("t", partitions=2, consumers=["c"])
        yield service
