# SPDX-License-Identifier: Apache-2.0
"""The plugin of pytest: the fixture ``pulsar_broker``, see ``pulsar_spark.testing``.

Each run of pytest imports this module, so that nothing else is imported before a test
asks for the fixture.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pulsar_spark.testing import PulsarBroker


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the setting of the release."""
    about = "Pulsar release of the fixture pulsar_broker"
    parser.addini("pulsar_version", about, default="")


@pytest.fixture(scope="session")
def pulsar_broker(pytestconfig: pytest.Config) -> Iterator[PulsarBroker]:
    """Yield a Pulsar broker that runs for the whole run of tests."""
    from pulsar_spark.testing.jars import DEFAULT_VERSION
    from pulsar_spark.testing.pulsar_broker import running_broker

    version = pytestconfig.getini("pulsar_version") or DEFAULT_VERSION
    with running_broker(version) as broker:
        yield broker
