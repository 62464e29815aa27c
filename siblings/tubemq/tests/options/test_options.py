# SPDX-License-Identifier: Apache-2.0
"""Options: what texts become, and every problem at once."""

from __future__ import annotations

import pytest

from spark_topics.options.offsets import Edge, Offsets
from spark_topics.options.spec import Scope
from tubemq_spark.errors import OptionError
from tubemq_spark.options import (
    parse_read_options,
    parse_write_options,
)
from tubemq_spark.wire.metadata import Partition

LEAST = {"master.rpc": "a:1", "topic": "demo"}


def test_names_and_defaults():
    options = parse_read_options(
        {"masterHostAndPort": "a:1, b,[::1]:9", "topics": "x,y,x"}, Scope.BATCH
    )
    assert options.client.masters == ("a:1", "b:8715", "[::1]:9")
    assert options.topics == ("x", "y")
    assert options.starting == Offsets(Edge.EARLIEST)
    assert options.ending == Offsets(Edge.LATEST)
    assert (options.client.rpc_timeout_s, options.not_found_pause_s) == (10.0, 0.2)


def test_a_stream_starts_at_the_end_unless_told():
    def start(**more: str) -> Edge:
        return parse_read_options({**LEAST, **more}, Scope.STREAM).starting.default

    assert start() is Edge.LATEST
    assert start(startingOffsets="EARLIEST") is Edge.EARLIEST
    assert start(**{"bootstrap.from.max": "false"}) is Edge.EARLIEST
    assert start(**{"bootstrap.from.max": "true"}) is Edge.LATEST


def test_offsets_of_partitions():
    text = '{"demo": {"1:0": 56, "1:10000": "latest"}}'
    starting = parse_read_options(
        {**LEAST, "startingOffsets": text}, Scope.BATCH
    ).starting
    assert starting.of(Partition("demo", 1, 0)) == 56
    assert starting.of(Partition("demo", 1, 10000)) is Edge.LATEST
    assert starting.of(Partition("demo", 2, 0)) is Edge.EARLIEST


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({}, "master.rpc is missing"),
        ({}, "topic is missing"),
        ({"master.rpc": "a b:1"}, "host:port of each master"),
        ({"master.rpc": "a:99999"}, "host:port of each master"),
        ({"topic": "a,b"}, "reads take several by topics, and rows that are written"),
        ({"topic": "1a"}, "cannot be a topic"),
        ({"topic": "a", "topics": "b"}, "both given"),
        ({"group": "a:b"}, "letters, digits"),
        ({"startingOffsets": "soon"}, "Write earliest, latest, or JSON"),
        ({"startingOffsets": '{"demo":{"1:0":27}}'}, "multiples of 28"),
        ({"startingOffsets": '{"demo":{"1:0":-28}}'}, "multiples of 28"),
        ({"startingOffsets": '{"demo":{"1:0":true}}'}, "is no number"),
        ({"startingOffsets": '{"demo":{"0":28}}'}, "broker:partition"),
        ({"startingOffsets": '{"demo":28}'}, "no partitions"),
        (
            {"startingOffsets": '{"demo":{"1:0":28,"01:0":56}}'},
            "demo/1:0 is named twice",
        ),
        (
            {"startingOffsets": '{"demo":{"1:0":28,"1:0":56}}'},
            "demo/1:0 is named twice",
        ),
        (
            {"startingOffsets": '{"demo":{"1:0":0},"demo":{"1:0":0}}'},
            "demo/1:0 is named twice",
        ),
        ({"startingOffsets": '{"demo":{"1:0":{"x":1}}}'}, "is no number"),
        ({"startingOffsets": "[" * 100_000}, "not usable JSON"),
        ({"topic": "x", "startingOffsets": '{"demo":{"1:0":28}}'}, "is not read"),
        ({"endingOffsets": "earliest"}, "nothing would be read"),
        ({"endingOffsets": '{"demo":{"1:0":-2}}'}, "earliest for demo/1:0"),
        (
            {
                "startingOffsets": '{"demo":{"1:0":56}}',
                "endingOffsets": '{"demo":{"1:0":28}}',
            },
            "demo/1:0 would end at 28, before it starts at 56",
        ),
        ({"startingOffsets": "latest", "bootstrap.from.max": "true"}, "both given"),
        ({"stream.id": "x" * 257}, "256 characters"),
        ({"startingTime": "5"}, "do not know when they stored a message"),
        ({"endingTimestamp": "5"}, "do not know when they stored a message"),
        ({"topicsPattern": ".*"}, "topicsPattern is not supported"),
        ({"usr.name": "me"}, "belong together"),
        ({"usr.password": "x"}, "belong together"),
        ({"usr.name": "a\nb", "usr.password": "x"}, "can be printed"),
        ({"usr.name": "a", "usr.password": "file:x"}, "whole path"),
        ({"tls.truststore.path": "/x"}, "set tls.enable=true"),
        ({"tls.enable": "false", "tlsKeyStorePath": "/x"}, "set tls.enable=true"),
        ({"tls.enable": "true", "tlsTrustStorePassword": "x"}, "needs tls.truststore"),
        (
            {"tls.enable": "true", "tlsKeyStorePath": "/x", "tlsKeyStorePassword": "x"},
            "set tls.store.type=PKCS12",
        ),
        ({"tls.enable": "true", "tls.store.type": "JKS"}, "keytool -importkeystore"),
        ({"tls.enable": "true", "tls.protocols": "SSLv3"}, "not safe"),
        ({"topik": "x"}, "topik"),
    ],
)
def test_problems_of_a_read(options: dict[str, str], problem: str):
    with pytest.raises(OptionError) as caught:
        parse_read_options(options, Scope.BATCH)
    assert problem in caught.value.message


def test_tls_and_a_user():
    given = {
        "master.rpc": "a,b:1",
        "topic": "demo",
        "tlsEnable": "true",
        "tlsTrustStorePath": "/trust.pem",
        "tls.keystore.path": "/identity.pem",
        "usrName": " me ",
        "usrPassWord": "env:PASSWORD",
    }
    client = parse_read_options(given, Scope.BATCH).client
    assert client.masters == ("a:8716", "b:1")
    assert client.tls.trust_certificates_path == "/trust.pem"
    assert client.tls.certificate_path == client.tls.key_path == "/identity.pem"
    assert (client.tls.trust_store_path, client.tls.key_store_path) == (None, None)
    assert client.tls.verify_hostname
    assert not client.tls.allow_insecure
    assert client.user == "me"
    stores = given | {"tls.store.type": "pkcs12", "tls.keystore.password": "file:/p"}
    tls = parse_write_options(stores, Scope.BATCH_WRITE).client.tls
    assert (tls.trust_store_path, tls.key_store_path) == ("/trust.pem", "/identity.pem")
    assert tls.key_store_password is not None
    assert tls.key_store_password.path == "/p"


def test_a_stream_has_no_end():
    with pytest.raises(OptionError, match="a stream has no end"):
        parse_read_options({**LEAST, "endingOffsets": "latest"}, Scope.STREAM)


def test_what_spark_adds_to_the_sink_of_a_stream_is_taken():
    added = {"checkpointLocation": "/data/checkpoint", "queryName": "copy"}
    parse_write_options({**LEAST, **added}, Scope.STREAM_WRITE)


def test_one_set_of_options_serves_a_read_and_a_write():
    """What is of no use to one of them is named in a warning, and no mistake."""
    both = {
        **LEAST,
        "group": "reports",
        "failOnDataLoss": "false",
        "partitionKey": "customer",
        "confirm.flush": "true",
    }
    assert parse_read_options(both, Scope.STREAM).group == "reports"
    assert parse_write_options(both, Scope.BATCH_WRITE).confirm_flush
    for parse, use in (
        (parse_read_options, Scope.BATCH),
        (parse_write_options, Scope.STREAM_WRITE),
    ):
        with pytest.raises(OptionError, match="There is no option 'groop'"):
            parse({**LEAST, "groop": "reports"}, use)


@pytest.mark.parametrize(
    "text",
    ["me:s3cr3t@a:1", "me:s3,cr3t@a:1", "tubemq://a:1?password=s3cr3t", "tcp://s3cr3t"],
)
def test_a_url_with_a_secret_is_not_repeated(text: str):
    with pytest.raises(OptionError, match="not a URL") as caught:
        parse_read_options({**LEAST, "master.rpc": text}, Scope.BATCH)
    assert "cr3t" not in caught.value.message


def test_limits_of_a_stream():
    options = parse_read_options(
        {**LEAST, "maxRowsPerTrigger": "7", "maxBytesPerTrigger": "512m"}, Scope.STREAM
    )
    assert (options.max_rows, options.max_bytes) == (7, 512 * 2**20)


def test_how_a_write_is_made_sure():
    options = parse_write_options(
        {**LEAST, "confirm.flush": "true", "max.retries": "0"}, Scope.BATCH_WRITE
    )
    assert (options.confirm_flush, options.max_retries) == (True, 0)
    assert parse_write_options(LEAST, Scope.BATCH_WRITE).max_retries is None


def test_a_write_is_at_least_once():
    assert parse_write_options(LEAST, Scope.BATCH_WRITE).topic == ("demo",)
    with pytest.raises(OptionError, match="at least once"):
        parse_write_options({**LEAST, "exactlyOnce": "true"}, Scope.BATCH_WRITE)
