# SPDX-License-Identifier: Apache-2.0
"""Tests of the option that names other clusters: what it takes, and beside what."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from pulsar_spark.errors import OptionError
from pulsar_spark.options import ServiceUrl, parse_read_options, parse_write_options
from pulsar_spark.options.failover import Failover

NAME = "pulsar.client.serviceUrlProvider"
BASE = {"service.url": "pulsar://a:6650", "topic": "t"}
B = ServiceUrl("pulsar", ("b:6650",))
C = ServiceUrl("pulsar", ("c:6650", "d:7000"))


def text(**words: Any) -> str:
    """The option with these words in it."""
    return json.dumps({"secondary": "pulsar://b", **words})


def write(given: str, **others: str) -> Failover | None:
    """What a write takes it for."""
    options = {**BASE, NAME: given, **others}
    return parse_write_options(options, streaming=False).client.failover


def read(given: str, *, streaming: bool = False, **others: str) -> Failover | None:
    """What a read takes it for."""
    options = {**BASE, NAME: given, **others}
    return parse_read_options(options, streaming=streaming).client.failover


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (text(), Failover((B,), 10.0)),
        (text(secondary=["pulsar://b", "pulsar://c,d:7000"]), Failover((B, C), 10.0)),
        (text(failoverDelayMs=2500), Failover((B,), 2.5)),
        (text(failoverDelayMs="2500"), Failover((B,), 2.5)),
        (
            text(primary="pulsar://a:6650"),
            Failover((B,), 10.0, ServiceUrl("pulsar", ("a:6650",))),
        ),
        ('{"SECONDARY": "pulsar://b", "failoverdelayms": 1}', Failover((B,), 0.001)),
    ],
)
def test_other_clusters(given: str, expected: Failover) -> None:
    """One URL or a list, each of one cluster; reads and writes take the same."""
    assert write(given) == expected
    assert read(given) == expected


def test_without_it() -> None:
    """There is no other cluster."""
    assert parse_read_options(BASE).client.failover is None


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("org.apache.pulsar.client.impl.AutoClusterFailover", "takes no class of Java"),
        ("ControlledClusterFailover", "let whoever starts the job set service.url"),
        ("pulsar://b:6650", 'such as {"secondary": ["pulsar://other-cluster:6650"]'),
        ("[]", "must be a JSON object"),
        ("{}", "needs secondary"),
        (text(secondary=[]), "needs secondary"),
        (text(secondary=7), "must be URLs"),
        (text(secondary={"url": "pulsar://b"}), "must be URLs"),
        (text(secondary="http://b:8080"), "the form of the admin URL"),
        (text(secondary="pulsar+ssl://b"), "cluster with pulsar://, as service.url"),
        (text(secondary="pulsar://a:6650"), "a host that is in another cluster"),
        (text(secondary=["pulsar://b", "pulsar://c,b"]), "is in another cluster"),
        (text(primary="pulsar://z"), "primary in .* is not service.url"),
        (text(failoverDelayMs=0), "failoverDelayMs in .* must be between 1"),
        (text(failoverDelayMs=True), "failoverDelayMs in .* must be a whole number"),
        (text(failoverDelayMs=1.5), "failoverDelayMs in .* must be a whole number"),
        (text(failoverDelay=10), "Did you mean failoverDelayMs?"),
        (text(switchBackDelay=1), "asks service.url first, by itself"),
        (text(switchBackDelayMs=1), "asks service.url first, by itself"),
        (text(checkInterval=1), "checkInterval in .* is not needed"),
        (text(failoverPolicy="ORDER"), "in the order in which they are named"),
        (text(secondaryAuthentication={}), "get the same credentials"),
        (text(secondaryTlsTrustCertsFilePath={}), "the same options of TLS"),
        ('{"secondary": "pulsar://b", "Secondary": "pulsar://c"}', "something twice"),
    ],
)
def test_what_it_does_not_take(given: str, says: str) -> None:
    """The error says what to write instead; in a read and in a write."""
    for use in (write, read):
        with pytest.raises(
            OptionError, match=re.escape(says).replace(r"\.\*", ".*")
        ) as caught:
            use(given)
        assert len(caught.value.problems) == 1


def test_all_problems_are_told() -> None:
    """At once, as of all options."""
    with pytest.raises(OptionError) as caught:
        write(text(switchBackDelay=1, failoverPolicy="ORDER", secondary=None))
    assert len(caught.value.problems) == 3


@pytest.mark.parametrize(
    "given",
    [
        text(secondary="pulsar://user:secret@b:6650"),
        text(primary="pulsar://user:secret@a:6650"),
        text(failoverDelayMs={"secret": 1}),
        text(failoverDelayMs="secret"),
        '{"secondary": "pulsar://b", "token:secret": 1}',
        '{"secondary": secret}',
        "secret",
    ],
)
def test_secrets(given: str) -> None:
    """What may be one is in no error; a URL has no user."""
    with pytest.raises(OptionError) as caught:
        write(given)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("guarantee", ["none", "at-least-once"])
def test_writes_that_may_repeat(guarantee: str, streaming: bool) -> None:
    """They take it, in a batch and in a stream."""
    options = {**BASE, NAME: text(), "deliveryGuarantee": guarantee}
    assert parse_write_options(options, streaming=streaming).client.failover


@pytest.mark.parametrize(
    ("guarantee", "known"),
    [("idempotent", "duplicates"), ("exactly-once", "transactions")],
)
def test_writes_that_must_not_repeat(guarantee: str, known: str) -> None:
    """They say what another cluster does not know."""
    with pytest.raises(OptionError, match=f"knows nothing of the {known}") as caught:
        write(text(), deliveryGuarantee=guarantee)
    assert "deliveryGuarantee=at-least-once" in str(caught.value)


@pytest.mark.parametrize(
    "others",
    [
        {},
        {"startingOffsets": "earliest"},
        {"startingOffsets": "subscription", "predefinedSubscription": "s"},
    ],
)
def test_streams_that_read(others: dict[str, str]) -> None:
    """Their positions mean nothing on another cluster."""
    with pytest.raises(OptionError, match="not for streams that read") as caught:
        read(text(), streaming=True, **others)
    assert "start the query with the other service.url" in str(caught.value)


def test_a_stream_that_only_asks_for_columns() -> None:
    """Spark does not say that it will be one: what no batch read has tells it."""
    with pytest.raises(OptionError, match="not for streams that read"):
        read(text(), startingOffsets="latest")


@pytest.mark.parametrize("name", ["startingOffsets", "endingOffsets"])
def test_positions(name: str) -> None:
    """Message ids are of one cluster; words are of any, and so are times."""
    with pytest.raises(OptionError, match=f"{name} cannot have message ids"):
        read(text(), **{name: '{"t": {"0": "12:3"}}'})
    word = "earliest" if name == "startingOffsets" else "latest"
    assert read(text(), **{name: f'{{"t": {{"0": "{word}"}}}}'})
    assert read(text(), startingTime="2024-03-01T01:00:00Z")


def test_versions_of_schemas() -> None:
    """Each cluster numbers them itself; the latest one is of any."""
    with pytest.raises(OptionError, match="schemaVersion cannot be a number"):
        read(text(), schemaVersion="3")
    assert read(text(), schemaVersion="latest")
