# SPDX-License-Identifier: Apache-2.0
"""Resolve names of hosts with a deadline, which the system's resolver does not have.

A thread asks the system, and the caller waits for it until the deadline. A call that
hangs cannot be ended. So all callers that ask for the same name in the meantime wait
for the same thread, and the number of threads is limited.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import threading
import time
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotInTimeError

#: Names that the system may be asked for at a time.
_MOST = 32

#: Hosts that the system is being asked for, and what they will resolve to.
_asked: dict[str, Future[list[str]]] = {}
_lock = threading.Lock()  # guards the map, never for long


def connect_to(
    host: str,
    port: int,
    timeout_s: float,
    option: str = "",
) -> socket.socket:
    """Connect to a host by name or address; the first address to answer is used.

    Args:
        host: Its name, or an address without brackets.
        port: Its port.
        timeout_s: Longest wait for the resolver and a connection together, in seconds;
            where a name has several addresses, for each of them.
        option: What the error about a resolver that is too slow says to raise, if
            anything.

    Raises:
        OSError: It has no address, or none of them answers in time.
    """
    began = time.monotonic()
    addresses = _addresses(host, timeout_s, option)
    left_s = max(timeout_s - (time.monotonic() - began), 0.001)
    for address in addresses[:-1]:
        try:
            return socket.create_connection((address, port), left_s)
        except OSError:
            continue
    return socket.create_connection((addresses[-1], port), left_s)


def is_here(host: str) -> bool:
    """Return whether a host is surely this machine: localhost or a loopback address.

    No one is asked what a name resolves to.

    Args:
        host: Its name, or an address without brackets.
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _addresses(host: str, timeout_s: float, option: str) -> list[str]:
    try:
        return _ask(host, socket.AI_NUMERICHOST)
    except socket.gaierror:
        pass  # it is a name
    with _lock:
        future = _asked.get(host)
        if future is None:
            if len(_asked) >= _MOST:
                raise TimeoutError(
                    f"{_MOST} other names of hosts are still being resolved"
                )
            future = Future()
            threading.Thread(
                target=_resolve, args=(host, future), name="resolve", daemon=True
            ).start()
            _asked[host] = future
    try:
        return future.result(timeout_s)
    except NotInTimeError:
        if future.done():  # so says the system itself, or it has just answered
            return future.result()
        raise TimeoutError(
            f"the name {host} was not resolved to an address within {timeout_s:g} s"
            + f" ({option})" * bool(option)
        ) from None


def _resolve(host: str, found: Future[list[str]]) -> None:
    try:
        addresses = _ask(host)
    except BaseException as error:
        _forget(host)
        found.set_exception(error)
    else:
        _forget(host)
        found.set_result(addresses)


def _forget(host: str) -> None:
    """Drop the cached answer, so that the next caller asks the resolver again."""
    with _lock:
        del _asked[host]


def _ask(host: str, flags: int = 0) -> list[str]:
    """Ask the system; return the addresses of a host, as texts, best first."""
    infos = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=flags)
    addresses = []
    for *_, where in infos:
        address, _, *more = map(str, where)  # of IPv6 also flow and scope
        if len(more) > 1 and more[1] != "0" and "%" not in address:
            address += f"%{more[1]}"
        addresses.append(address)
    return list(dict.fromkeys(addresses))


def _forget_parent() -> None:
    """Forget, in a forked child, what threads of the parent ask for."""
    global _lock
    _lock = threading.Lock()  # another thread of the parent may have held it
    _asked.clear()


os.register_at_fork(after_in_child=_forget_parent)
