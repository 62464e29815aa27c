# SPDX-License-Identifier: Apache-2.0
"""Failover clusters, in options and as a value."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from pulsar_spark.errors import OptionError
from pulsar_spark.options.service_url import ServiceUrl, parse_service_url
from spark_topics.options.given import Given
from spark_topics.options.values import DAY_S, MILLI, nearest, seconds
from spark_topics.text import Pairs, load_object

NAME = "pulsar.client.serviceUrlProvider"

#: How long a cluster may be out of reach. Long enough for a broker to be started again
#: or for its address to move; and below ``sendTimeoutMs`` and ``lookupTimeoutMs``, 30 s
#: unless they are set, so that a write moves on before it would have failed.
_DELAY_S = 10.0

_FORM = '{"secondary": ["pulsar://other-cluster:6650"], "failoverDelayMs": 10000}'

_KEYS = {name.lower(): name for name in ("primary", "secondary", "failoverDelayMs")}

#: What to do instead, by the beginning of other words of Java's builder.
_INSTEAD = {
    "switchback": "leave it out: each read and each batch of a write asks service.url"
    " first, by itself",
    "checkinterval": "leave it out: a cluster is asked when a read or a batch of a"
    " write begins, and when a write is cut off",
    "failoverpolicy": "leave it out: clusters are asked in the order in which they are"
    " named",
    "secondaryauthentication": "leave it out: all clusters get the same credentials",
    "secondarytls": "leave it out: all clusters have the same options of TLS",
}


@dataclass(frozen=True)
class Failover:
    """Other clusters with the same topics, used while a cluster is down.

    Attributes:
        secondary: The other clusters, in the order in which they are asked.
        delay_s: How long a cluster must be out of reach, in seconds.
        primary: The first one, if it is named here, too.
    """

    secondary: tuple[ServiceUrl, ...]
    delay_s: float = _DELAY_S
    primary: ServiceUrl | None = None


def parse_failover(text: str, option: str) -> Failover:
    """Read a JSON object in the words of Java's AutoClusterFailover.

    An error repeats a name of the object that it does not know, if that could be the
    name of an option, and a whole number; nothing else of the text.

    Raises:
        OptionError: With every problem found.
    """
    pairs = load_object(text)
    if pairs is None:
        raise OptionError(
            f"{option} must be a JSON object such as {_FORM}.{_why(text)}"
        )
    problems = [problem for name, _ in pairs if (problem := _problem(name, option))]
    values = {_KEYS[name.lower()]: value for name, value in pairs if _is_known(name)}
    if sum(_is_known(name) for name, _ in pairs) > len(values):
        problems.append(f"{option} says something twice.")
    primary = None
    secondary: tuple[ServiceUrl, ...] = ()
    delay_s = _DELAY_S
    try:
        secondary = _clusters(values.get("secondary"), option)
        if "primary" in values:
            primary = _cluster(values["primary"], f"primary in {option}")
        if "failoverDelayMs" in values:
            delay_s = _delay_s(values["failoverDelayMs"], option)
    except OptionError as error:
        problems += error.problems
    if problems:
        raise OptionError(*problems)
    return Failover(secondary, delay_s, primary)


def _why(text: str) -> str:
    """Say what to do instead of naming a class of Java's."""
    if "controlledclusterfailover" in text.lower():
        return (
            " No service is asked which cluster to use: let whoever starts the job set"
            " service.url."
        )
    return " It takes no class of Java."


def _is_known(name: str) -> bool:
    return name.lower() in _KEYS


def _problem(name: str, option: str) -> str:
    """Return the problem of a word, "" if valid."""
    if _is_known(name):
        return ""
    for beginning, instead in _INSTEAD.items():
        if name.lower().startswith(beginning):
            return f"{name} in {option} is not needed: {instead}."
    shown = f" {name}" if name.isidentifier() else " one of the names in it"
    hint = nearest(name.lower(), _KEYS) or f" Write {_FORM}."
    return f"{option} does not know{shown}.{hint}"


def _clusters(value: Any, option: str) -> tuple[ServiceUrl, ...]:
    """Parse a URL, or a list of URLs."""
    urls = (
        value if isinstance(value, list) and not isinstance(value, Pairs) else [value]
    )
    if value is None or not urls:
        raise OptionError(f"{option} needs secondary, as in {_FORM}.")
    return tuple(_cluster(url, f"secondary in {option}") for url in urls)


def _cluster(value: Any, what: str) -> ServiceUrl:
    if not isinstance(value, str):
        raise OptionError(f"{what} must be URLs such as pulsar://other-cluster:6650.")
    return parse_service_url(value, what)


def _delay_s(value: Any, option: str) -> float:
    parse = seconds(MILLI, DAY_S)
    is_number = isinstance(value, int | str) and not isinstance(value, bool)
    shown = str(value) if is_number else ""
    # Any other value may be long, or a secret, and is not repeated.
    is_whole = re.fullmatch(r"[-+]?[0-9]{1,19}", shown.strip(), re.ASCII)
    return parse(shown if is_whole else "?", f"failoverDelayMs in {option}")


def check_failover(
    given: Given, service_url: ServiceUrl, failover: Failover | None
) -> None:
    """Add problems of failover clusters to ``given``.

    Args:
        given: Where to add problems.
        service_url: The first one.
        failover: The others; None for none.
    """
    if failover is None:
        return
    if failover.primary not in (None, service_url):
        given.problems.append(
            f"primary in {NAME} is not service.url: leave it out, or name the same"
            " hosts."
        )
    if any(cluster.scheme != service_url.scheme for cluster in failover.secondary):
        given.problems.append(
            f"{NAME} must begin the URL of each cluster with {service_url.scheme}://,"
            " as service.url does."
        )
    hosts = [
        host for cluster in (service_url, *failover.secondary) for host in cluster.hosts
    ]
    if len(set(hosts)) < len(hosts):
        given.problems.append(
            f"{NAME} names a host that is in another cluster, too: give service.url and"
            " each URL of secondary the hosts of one cluster."
        )
