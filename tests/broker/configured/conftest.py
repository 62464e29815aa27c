# SPDX-License-Identifier: Apache-2.0
"""A broker with settings of its own, for all files of this folder.

What one file needs does not change what the others see: without authorization everybody
may do everything, also who shows no certificate.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pulsar_spark.testing.embedded_broker import EmbeddedBroker
from tests.support.certificates import Authority, tls_settings
from tests.support.transactions import OPEN_LIMIT

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="package")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Who certifies the broker."""
    return Authority(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="package")
def configured(authority: Authority) -> Iterator[EmbeddedBroker]:
    """A broker that numbers entries, has TLS, and limits open transactions."""
    settings = {
        **tls_settings(authority, authority.issue("server")),
        "authenticationEnabled": "true",
        "authenticationProviders": (
            "org.apache.pulsar.broker.authentication.AuthenticationProviderTls"
        ),
        "anonymousUserRole": "nobody",
        "maxActiveTransactionsPerCoordinator": str(OPEN_LIMIT),
    }
    with EmbeddedBroker(settings=settings, entry_metadata=True) as broker:
        yield broker
