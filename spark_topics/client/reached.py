# SPDX-License-Identifier: Apache-2.0
"""How each server was reached last: by TLS, or without.

A connection that ends before a word was heard on it may be for the other kind of port,
or its server goes down or comes up. The latter is tried again, and so it is worth
knowing what a server spoke before.
"""

from __future__ import annotations

#: As many servers are kept.
_KEPT = 10_000

#: Without a lock: each step is one of Python's own, and a fork leaves none held.
_by_tls: dict[str, bool] = {}


def note_reached(address: str, *, by_tls: bool) -> None:
    """Note that the server at ``host:port`` has answered correctly."""
    if len(_by_tls) >= _KEPT:
        _by_tls.clear()
    _by_tls[address] = by_tls


def was_reached(address: str, *, by_tls: bool) -> bool:
    """Return whether the server at ``host:port`` was reached like that the last time.

    The last time only: a server that has TLS since then is another kind of server.
    """
    return _by_tls.get(address) is by_tls


def forget_reached() -> None:
    """Forget all servers."""
    _by_tls.clear()
