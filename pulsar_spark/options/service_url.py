# SPDX-License-Identifier: Apache-2.0
"""The address of a cluster, as users write it and as a value."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pulsar_spark.errors import OptionError

_DEFAULT_PORT = 6650


@dataclass(frozen=True)
class ServiceUrl:
    """Where a cluster is, and how to speak to it.

    Attributes:
        scheme: ``pulsar``: without TLS.
        hosts: ``host:port`` of each host, tried in turn. IPv6 hosts stand in brackets.
    """

    scheme: str
    hosts: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.scheme}://{','.join(self.hosts)}"


def parse_service_url(text: str, option: str) -> ServiceUrl:
    """Read ``pulsar://host[:port][,host[:port]]...``.

    Args:
        text: The URL.
        option: The option that errors name.

    Raises:
        OptionError: It is none, or needs what this version does not support.
    """
    url = text.strip()
    if "@" in url:
        # The text is not repeated: what stands before the "@" is a secret.
        raise OptionError(f"{option} must not contain a user or a password.")
    scheme, separator, rest = url.partition("://")
    if not separator:
        raise OptionError(
            f"{option} must begin with pulsar://, such as pulsar://localhost:6650."
        )
    scheme = scheme.lower()
    _check_scheme(scheme, option)
    hosts: dict[str, None] = {}
    for part in rest.removesuffix("/").split(","):
        hosts[_host_and_port(part.strip().removeprefix("pulsar://"), option)] = None
    return ServiceUrl(scheme, tuple(hosts))


def _check_scheme(scheme: str, option: str) -> None:
    if scheme in ("http", "https"):
        raise OptionError(
            f"{option} begins with {scheme}://, which is the form of the admin URL. The"
            " broker's own URL begins with pulsar://, and its port is usually 6650."
        )
    if scheme == "pulsar+ssl":
        raise OptionError(
            f"{option} begins with pulsar+ssl://, but TLS is not supported yet by this"
            " version."
        )
    if scheme != "pulsar":
        raise OptionError(f"{option} must begin with pulsar://.")


_HOST = re.compile(r"(\[[0-9A-Fa-f:.%]+\]|[-.\w]+)(?::([0-9]{1,5}))?", re.ASCII)


def _host_and_port(text: str, option: str) -> str:
    match = _HOST.fullmatch(text)
    if match is None:
        raise OptionError(
            f"{option} must be hosts with optional ports, such as"
            " pulsar://broker-1:6650,broker-2:6650."
        )
    port = int(match[2] or _DEFAULT_PORT)
    if not 1 <= port <= 65535:
        raise OptionError(f"{option}: {match[1]} cannot have the port {port}.")
    return f"{match[1]}:{port}"
