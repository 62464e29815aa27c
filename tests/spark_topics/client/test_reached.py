# SPDX-License-Identifier: Apache-2.0
"""How servers were reached last."""

from __future__ import annotations

import pytest

from spark_topics.client.reached import forget_reached, note_reached, was_reached

SERVER = "broker-1:6651"


@pytest.mark.parametrize("by_tls", [False, True])
def test_a_server_nobody_has_reached(by_tls: bool):
    """It is known in neither way."""
    assert not was_reached(SERVER, by_tls=by_tls)


@pytest.mark.parametrize("by_tls", [False, True])
def test_a_server_is_known_as_it_was_reached(by_tls: bool):
    """And only so, and only that one."""
    note_reached(SERVER, by_tls=by_tls)
    assert was_reached(SERVER, by_tls=by_tls)
    assert not was_reached(SERVER, by_tls=not by_tls)
    assert not was_reached("broker-2:6651", by_tls=by_tls)


@pytest.mark.parametrize("by_tls", [False, True])
def test_the_last_time_counts(by_tls: bool):
    """A port that has got TLS, or is another server's now."""
    note_reached(SERVER, by_tls=not by_tls)
    note_reached(SERVER, by_tls=by_tls)
    assert was_reached(SERVER, by_tls=by_tls)
    assert not was_reached(SERVER, by_tls=not by_tls)


def test_servers_are_forgotten():
    """All of them."""
    note_reached(SERVER, by_tls=True)
    forget_reached()
    assert not was_reached(SERVER, by_tls=True)


def test_no_more_than_so_many_are_kept():
    """Those that come when there is no room left are known."""
    servers = [f"broker-{number}:6651" for number in range(25_000)]
    for server in servers:
        note_reached(server, by_tls=True)
    known = [server for server in servers if was_reached(server, by_tls=True)]
    assert len(known) <= 10_000
    assert servers[-1] in known
