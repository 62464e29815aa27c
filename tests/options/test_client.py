# SPDX-License-Identifier: Apache-2.0
"""Tests of the options that say how to reach a cluster."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from pulsar_spark.options import ClientOptions, ServiceUrl
from pulsar_spark.options.failover import Failover

URL = ServiceUrl("pulsar", ("a:6650", "b:6651"))
OPTIONS = ClientOptions(URL)


def test_a_service_url_as_text() -> None:
    """It is written as users write it."""
    assert str(URL) == "pulsar://a:6650,b:6651"


def test_equal_options_may_share_connections() -> None:
    """The key is a value: each task brings options of its own."""
    assert ClientOptions(URL).pool_key == OPTIONS.pool_key
    assert hash(ClientOptions(URL).pool_key) == hash(OPTIONS.pool_key)


@pytest.mark.parametrize(
    "change",
    [
        {"service_url": ServiceUrl("pulsar+ssl", URL.hosts)},
        {"service_url": ServiceUrl("pulsar", ("a:6650",))},
        {"listener_name": "outside"},
        {"operation_timeout_s": 1.0},
        {"keep_alive_interval_s": 1.0},
        {"max_lookup_redirects": 1},
        {"memory_limit_bytes": 1},
    ],
)
def test_what_connections_depend_on_is_in_the_key(change: dict[str, object]) -> None:
    """Another cluster, scheme or limit needs connections of its own."""
    assert replace(OPTIONS, **change).pool_key != OPTIONS.pool_key


def test_the_rest_is_not_in_the_key() -> None:
    """How often a task reports, and where else it may go, make no other connection."""
    others = Failover((ServiceUrl("pulsar", ("c:6650",)),))
    for change in ({"stats_interval_s": 1.0}, {"failover": others}):
        assert replace(OPTIONS, **change).pool_key == OPTIONS.pool_key
    assert len(OPTIONS.pool_key) == len(fields(ClientOptions)) - 2
