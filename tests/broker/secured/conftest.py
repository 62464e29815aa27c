# SPDX-License-Identifier: Apache-2.0
"""A broker with permissions, for all files of this folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.certificates import Authority, tls_settings
from tests.support.secured import NAMESPACE, USER, SecuredBroker

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="package")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Who certifies the broker."""
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="package")
def secured(authority: Authority) -> Iterator[SecuredBroker]:
    """A broker that wants to know who connects, and that speaks TLS, too."""
    with SecuredBroker(tls_settings(authority, authority.issue("server"))) as one:
        one.admin.create_namespace(NAMESPACE, keep=True)
        one.admin.grant(NAMESPACE, "reader", "consume")
        one.admin.grant(NAMESPACE, "writer", "produce")
        one.admin.grant(NAMESPACE, "both", "produce", "consume")
        one.admin.grant(NAMESPACE, USER, "consume")
        # Where the coordinators of transactions are.
        for role in ("both", "source", "sink"):
            one.admin.grant("pulsar/system", role, "consume")
        yield one
