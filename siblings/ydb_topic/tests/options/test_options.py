# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import pickle
from typing import Any

import pytest

from spark_topics.options.offsets import Edge, Offsets
from ydb_spark.errors import OptionError
from ydb_spark.options.parse import KNOWN
from ydb_spark.options.read import parse_read_options
from ydb_spark.options.write import (
    DeliveryGuarantee,
    Partitioning,
    parse_write_options,
)

URL = "grpcs://host:2135/local/db"


def write(**given: str) -> Any:
    """Options of a batch write."""
    options = {"url": URL, "topic": "t", **given}
    return parse_write_options(options, KNOWN, streaming=False)


def read(*, streaming: bool = False, **given: str) -> Any:
    """Options of a read."""
    options = {"url": URL, "topic": "t", **given}
    return parse_read_options(options, KNOWN, streaming=streaming)


@pytest.mark.parametrize(
    ("given", "endpoint", "database"),
    [
        ({"url": "grpc://h:2136/local"}, "grpc://h:2136", "/local"),
        ({"url": "grpcs://h:2135/?database=/a/b"}, "grpcs://h:2135", "/a/b"),
        ({"url": "grpcs://[::1]:2135", "database": "/d"}, "grpcs://[::1]:2135", "/d"),
        ({"endpoint": "grpc://h:1", "database": "/d"}, "grpc://h:1", "/d"),
    ],
)
def test_where(given: dict[str, str], endpoint: str, database: str):
    """All forms of a connection string."""
    found = parse_write_options({"topic": "t", **given}, KNOWN, streaming=False)
    assert (found.connection.endpoint, found.connection.database) == (
        endpoint,
        database,
    )


@pytest.mark.parametrize(
    "text", ["1714979289000", "2024-05-06T07:08:09Z", "2024-05-06 09:08:09 +02:00"]
)
def test_starting_time(text: str):
    """Both forms; it says where to begin, so nothing else does."""
    options = read(startingtime=text)
    assert (options.starting, options.starting_time_ms) == (None, 1714979289000)
    with pytest.raises(OptionError, match="exclude each other"):
        read(startingtime=text, startingoffsets="earliest")
    with pytest.raises(OptionError, match='"soon" is not a time'):
        read(startingtime="soon")


def test_defaults():
    """What nobody says."""
    options = write()
    assert options.guarantee is DeliveryGuarantee.AT_LEAST_ONCE
    assert options.partitioning is Partitioning.SERVER
    assert (options.codec, options.max_request_bytes) == (1, 512 << 10)
    assert read().starting == Offsets(Edge.EARLIEST)
    assert read(streaming=True).starting == Offsets(Edge.LATEST)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"url": "host:2135"}, "url must begin with"),
        ({"url": "grpcs://host"}, "one host and port"),
        ({"url": "grpcs://u:p@host:1/d"}, "one host and port"),
        ({"url": "grpcs://host:2135"}, "database is missing"),
        ({"database": "/other"}, "two databases"),
        ({"auth.token": "a", "auth.use_env": "true"}, "exclude each other"),
        ({"auth.login": "ann"}, "belong together"),
        ({"url": "grpc://h:1/d", "ca": "file:/ca.pem"}, "ca is for TLS"),
        ({"deliveryGuarantee": "exactly-once"}, "cannot be exactly-once"),
        (
            {
                "partitioning": "message_group_id",
                "deliveryGuarantee": "idempotent",
            },
            "partitioning=message_group_id and .* exclude each other",
        ),
        ({"deliveryGuarantee": "idempotent", "partitioning": "key"}, "stored again"),
        ({"writeSessionMeta": '{"a": 1}'}, "JSON object of strings"),
        ({"writeSessionMeta": '{"a": "\\ud800"}'}, "JSON object of strings"),
        ({"writeSessionMeta": '{"a": "1", "a": "2"}'}, "names a property twice"),
        ({"idempotenceId": "x" * 2000}, "has 2000 bytes of UTF-8, and may have 1948"),
        ({"idempotenceId": "\u00e4" * 1000}, "has 2000 bytes of UTF-8"),
        ({"codec": "lz4"}, "codec"),
        ({"unheardOf": "1"}, "There is no option"),
    ],
)
def test_problems_of_writes(given: dict[str, str], problem: str):
    """Each is named; a password never is."""
    with pytest.raises(OptionError, match=problem) as caught:
        write(**given)
    assert "u:p" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        *("", "now", "[1]", '{"a": 1}', '{"0": -3}', '{"0": 1.5}', '{"0": true}'),
        *('{"0": 1, "0": 5}', '{"01": 1}', '{"1_0": 3}', '{" 1": 3}', '{"-0": 1}'),
    ],
)
def test_offsets_that_are_none(text: str):
    """One sentence says what they may be."""
    with pytest.raises(OptionError, match="startingOffsets"):
        read(startingOffsets=text)


@pytest.mark.parametrize("streaming", [False, True])
def test_partitions_that_are_not_named(streaming: bool):
    """They begin at the earliest message, and end at the latest: none is left out."""
    options = read(startingOffsets='{"10": 5}', streaming=streaming)
    assert options.starting == Offsets(Edge.EARLIEST, {10: 5})
    if not streaming:
        ending = read(endingOffsets='{"0": 5}').ending
        assert ending == Offsets(Edge.LATEST, {0: 5})


def test_all_problems_at_once():
    """Each in a sentence."""
    with pytest.raises(OptionError) as caught:
        parse_read_options({"startingOffsets": "x"}, KNOWN, streaming=False)
    assert len(caught.value.problems) >= 3


def test_secrets():
    """They travel, and are not shown."""
    options = write(**{"auth.login": "ann", "auth.password": "hunter2"})
    copy = pickle.loads(pickle.dumps(options))  # noqa: S301
    assert copy == options
    assert copy.connection.password.read() == "hunter2"
    assert "hunter2" not in repr(options)
