# SPDX-License-Identifier: Apache-2.0
"""HTTP proxies named by the environment.

They are those of ``urllib.request``: ``https_proxy`` and ``http_proxy``, or the same in
capitals, and ``no_proxy``, which names hosts that are reached without one.
"""

from __future__ import annotations

import re
import urllib.request
from urllib.parse import urlsplit

from pulsar_spark.errors import foreign_text
from spark_topics.client.resolving import is_here

#: By this a proxy asks who connects, where a server would answer with 401.
_ASKS_WHO = 407

#: What ``http.client`` says where a proxy opens no connection to a host.
_REFUSAL = re.compile(r"Tunnel connection failed: ([0-9]{3})")


def proxy_handler(url: str) -> urllib.request.ProxyHandler:
    """Return the handler for a URL's proxy, if any.

    None of them reaches this machine.
    """
    return urllib.request.ProxyHandler(None if _may_have_proxy(url) else {})


def why_unreached(url: str, error: OSError) -> tuple[str, bool]:
    """Return why a URL cannot be reached, and whether that may pass.

    Args:
        url: Which one.
        error: What trying to connect ended with.
    """
    reason, proxy = error.strerror or type(error).__name__, _proxy(url)
    if proxy is None:
        return f"cannot be reached ({reason})", True
    refusal = _REFUSAL.search(str(error))
    if refusal is not None:
        return _refused(proxy, int(refusal[1]))
    return f"cannot be reached through the proxy {proxy} ({reason})", True


def proxy_refusal(url: str, status: int) -> tuple[str, bool] | None:
    """Return as ``why_unreached`` what a proxy's own answer means, None for a server's.

    Args:
        url: What was asked for.
        status: The answer's.
    """
    proxy = _proxy(url)
    return None if proxy is None or status != _ASKS_WHO else _refused(proxy, status)


def _refused(proxy: str, status: int) -> tuple[str, bool]:
    why = f"cannot be reached: the proxy {proxy} answers {status}"
    if status == _ASKS_WHO:
        why += ", it asks for a user and a password. Write http://user:password@ before"
        return f"{why} its host in the environment, or name ours in no_proxy", False
    why += ". Name the host in no_proxy, or have the proxy let us through"
    return why, status >= 500


def _proxy(url: str) -> str | None:
    """Return the proxy of a URL with the variable's name, None without a proxy."""
    if not _may_have_proxy(url):
        return None
    parts = urlsplit(url)
    proxy = urllib.request.getproxies().get(parts.scheme)
    if not proxy or urllib.request.proxy_bypass(parts.netloc.rpartition("@")[2]):
        return None
    # What stands before an "@" may be a secret.
    host = proxy.rpartition("//")[2].rpartition("@")[2].rstrip("/")
    return f"{foreign_text(host)} (of {parts.scheme}_proxy)"


def _may_have_proxy(url: str) -> bool:
    return not is_here(urlsplit(url).hostname or "")
