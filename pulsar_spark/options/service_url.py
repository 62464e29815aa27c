# SPDX-License-Identifier: Apache-2.0
"""The address of a cluster, in options and as a value."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pulsar_spark.errors import OptionError

#: The port of a host that names none, by the scheme.
_DEFAULT_PORTS = {"pulsar": 6650, "pulsar+ssl": 6651}


@dataclass(frozen=True)
class ServiceUrl:
    """The hosts of a cluster, and whether to use TLS.

    Attributes:
        scheme: ``pulsar``: without TLS; ``pulsar+ssl``: with TLS.
        hosts: ``host:port`` of each host, tried in turn. IPv6 hosts stand in brackets.
    """

    scheme: str
    hosts: tuple[str, ...]

    @property
    def uses_tls(self) -> bool:
        """Return whether every connection is to be by TLS."""
        return self.scheme == "pulsar+ssl"

    def __str__(self) -> str:
        return f"{self.scheme}://{','.join(self.hosts)}"


def parse_service_url(text: str, option: str) -> ServiceUrl:
    """Parse ``pulsar://host[:port][,host[:port]]...``, or ``pulsar+ssl://...``.

    Args:
        text: The URL.
        option: The option that errors name.

    Raises:
        OptionError: It is none.
    """
    url = text.strip()
    if "@" in url:
        # The text is not repeated: what stands before the "@" is a secret.
        raise OptionError(f"{option} must not contain a user or a password.")
    scheme, separator, rest = url.partition("://")
    if not separator:
        has_port = _HOST.fullmatch(url) and ":" in url
        example = url if has_port else "localhost:6650"
        raise OptionError(
            f"{option} must begin with pulsar:// or pulsar+ssl://, such as"
            f" pulsar://{example}."
        )
    scheme = scheme.lower()
    _check_scheme(scheme, option)
    hosts: dict[str, None] = {}
    for part in rest.removesuffix("/").split(","):
        host = part.strip().removeprefix(f"{scheme}://")
        if "://" in host:
            raise OptionError(
                f"{option} must begin each of its hosts with {scheme}://."
            )
        hosts[_host_and_port(host, _DEFAULT_PORTS[scheme], option)] = None
    return ServiceUrl(scheme, tuple(hosts))


def _check_scheme(scheme: str, option: str) -> None:
    if scheme in ("http", "https"):
        raise OptionError(
            f"{option} begins with {scheme}://, which is the form of the admin URL. The"
            " broker's own URL begins with pulsar://, and its port is usually 6650."
        )
    if scheme not in _DEFAULT_PORTS:
        raise OptionError(f"{option} must begin with pulsar:// or pulsar+ssl://.")


_HOST = re.compile(r"(\[[0-9A-Fa-f:.%]+\]|[-.\w]+)(?::([0-9]{1,18}))?", re.ASCII)


def _host_and_port(text: str, default_port: int, option: str) -> str:
    match = _HOST.fullmatch(text)
    if match is None:
        raise OptionError(
            f"{option} must be hosts with optional ports, such as"
            " pulsar://broker-1:6650,broker-2:6650."
        )
    port = int(match[2] or default_port)
    if not 1 <= port <= 65535:
        raise OptionError(
            f"{option}: {match[1]} cannot have the port {port}: a port is 1 to 65535."
        )
    return f"{match[1]}:{port}"
