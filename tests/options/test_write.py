# SPDX-License-Identifier: Apache-2.0
"""Tests of `pulsar_spark.options`: what a write takes."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import pickle
import re
from collections.abc import Callable
from dataclasses import fields
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_spark.errors import OptionError
from pulsar_spark.options import (
    OPTIONS,
    ClientOptions,
    DeliveryGuarantee,
    Scope,
    ServiceUrl,
    Support,
    WriteOptions,
    parse_read_options,
    parse_write_options,
)
from pulsar_spark.options.authentication import AuthenticationOptions
from pulsar_spark.topics import TopicName
from spark_topics.options import given as module
from spark_topics.options.spec import specs_of
from tests.options.test_read import CLIENT_GIVEN, FAILOVER, TLS, problems_of

SECRET = "eyJhbGciOiJIUzI1NiJ9.c2VjcmV0"
BASE = {"service.url": "pulsar://localhost:6650"}
PLACE = {"checkpointLocation": "/data/checkpoints/orders"}
PLACE_ID = "orders-65e8c416df21"
P = "pulsar.producer."

Guarantee = DeliveryGuarantee


@pytest.fixture(autouse=True)
def _nothing_warned_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_warned", set())


def write(
    extra: dict[str, str] | None = None, *, streaming: bool = False
) -> WriteOptions:
    """Options of a write that have no problem."""
    return parse_write_options(BASE | (extra or {}), streaming=streaming)


def exactly_once(
    extra: dict[str, str] | None = None, *, streaming: bool = True
) -> WriteOptions:
    """Options of an exactly-once stream, or batch write."""
    return write(guaranteed("exactly-once") | (extra or {}), streaming=streaming)


def guaranteed(guarantee: str) -> dict[str, str]:
    """Options that choose a guarantee, and have all it needs on a stream."""
    return {"deliveryGuarantee": guarantee, "checkpointlocation": "/data/c"}


def problems(extra: dict[str, str], *, streaming: bool = False) -> tuple[str, ...]:
    """The problems for which options are refused, in sentences."""
    return problems_of(lambda: write(extra, streaming=streaming))


def problem(name: str, text: str, *, streaming: bool = False) -> str:
    """The only problem of one option besides the required one."""
    (only,) = problems({name: text}, streaming=streaming)
    return only


def warned(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The options that the only warning names."""
    (record,) = caplog.records
    assert record.name == "pulsar_spark.options"
    assert record.levelno == logging.WARNING
    begin, names = record.getMessage().split(": ")
    assert begin == "These options have no effect on this write, and are ignored"
    return names.split(", ")


# Defaults and types


@pytest.mark.parametrize("streaming", [False, True])
def test_defaults(streaming: bool) -> None:
    """With nothing but the address, the documented defaults hold."""
    result = write(streaming=streaming)
    assert result == WriteOptions(
        ClientOptions(service_url=ServiceUrl("pulsar", ("localhost:6650",)))
    )
    # docs/guarantees.md and docs/sizing.md count on these, and other clients on where
    # keys go.
    assert result.guarantee is Guarantee.AT_LEAST_ONCE
    assert result.hashing_scheme == "JavaStringHash"
    assert result.message_routing_mode == "RoundRobinPartition"
    assert (result.transaction_timeout_ms, result.send_timeout_s) == (600_000, 30.0)
    assert result.batching_max_messages == 1000
    assert result.batching_max_bytes == 128 * 1024


GIVEN: dict[str, tuple[str, str, Any]] = {
    "topic": ("topic", "a/b/c", TopicName("a", "b", "c")),
    "deliveryGuarantee": ("guarantee", " NONE ", Guarantee.NONE),
    "schemaType": ("schema_type", "AVRO", "avro"),
    "schemaTopic": ("schema_topic", "a/b/c", TopicName("a", "b", "c")),
    "keyValueEncodingType": ("key_value_encoding", "separated", "SEPARATED"),
    "jsonBytes": ("json_bytes", "Base64", "base64"),
    "timeZone": ("time_zone", "Europe/Berlin", "Europe/Berlin"),
    "topicAutoCreation": ("topic_auto_creation", "FALSE", False),
    P + "batchingEnabled": ("batching_enabled", "False", False),
    P + "batchingMaxPublishDelayMicros": (
        "batching_max_publish_delay_s",
        "2500",
        0.0025,
    ),
    P + "batchingMaxMessages": ("batching_max_messages", "1", 1),
    P + "batchingMaxBytes": ("batching_max_bytes", "1m", 1 << 20),
    P + "batcherBuilder": ("key_based_batching", "key_based", True),
    P + "compressionType": ("compression_type", "zstd", "ZSTD"),
    P + "chunkingEnabled": ("chunking_enabled", "true", True),
    P + "chunkMaxMessageSize": ("chunk_max_message_size", "4k", 4096),
    P + "sendTimeoutMs": ("send_timeout_s", "1500", 1.5),
    P + "hashingScheme": ("hashing_scheme", "MURMUR3_32hash", "Murmur3_32Hash"),
    P + "messageRoutingMode": (
        "message_routing_mode",
        "singlepartition",
        "SinglePartition",
    ),
    P + "accessMode": ("access_mode", "waitforexclusive", "WaitForExclusive"),
    P + "producerName": ("producer_name", " Me ", "Me"),
    P + "initialSequenceId": ("initial_sequence_id", "0", 0),
    P + "properties": (
        "producer_properties",
        '{"B":"1","a":""}',
        (("B", "1"), ("a", "")),
    ),
    P + "keyEncoding": ("key_encoding", "BYTES", "bytes"),
}
EXACTLY_ONCE_GIVEN: dict[str, tuple[str, str, Any]] = {
    "idempotenceId": ("idempotence_id", " My.Id_-:=1 ", "My.Id_-:=1"),
    "transactionTimeoutMs": ("transaction_timeout_ms", "1000", 1000),
    "commitTopic": ("commit_topic", "a/b/c", TopicName("a", "b", "c")),
    "checkpointLocation": ("idempotence_id", PLACE["checkpointLocation"], PLACE_ID),
}
ROWS = GIVEN | CLIENT_GIVEN | EXACTLY_ONCE_GIVEN

#: In tests/options/test_encryption.py.
OF_ENCRYPTION = {
    "encryption.keys",
    "encryption.publicKeys",
    P + "cryptoFailureAction",
    "encryption.required",
}


def check_only_field(before: Any, after: Any, field: str, value: Any) -> None:
    """One field has another value, of its type; the others are the same."""
    assert getattr(after, field) == value
    assert type(getattr(after, field)) is type(value)
    changed = {
        f.name
        for f in fields(after)
        if getattr(after, f.name) != getattr(before, f.name)
    }
    assert changed == {field}


@pytest.mark.parametrize("name", [*GIVEN, *CLIENT_GIVEN])
def test_each_option_reaches_its_field(name: str) -> None:
    """An option in any case sets its one field to a typed value, silently."""
    field, text, value = ROWS[name]
    for streaming in (False, True):
        before = write(streaming=streaming)
        for spelling in (name, name.lower(), name.upper()):
            after = write({spelling: text}, streaming=streaming)
            if name in CLIENT_GIVEN:
                check_only_field(before.client, after.client, field, value)
            else:
                check_only_field(before, after, field, value)


@pytest.mark.parametrize("name", EXACTLY_ONCE_GIVEN)
@pytest.mark.parametrize("change", [str, str.lower, str.upper])
def test_each_option_of_exactly_once_reaches_its_field(
    name: str, change: Callable[[str], str]
) -> None:
    """So it is with options that only this guarantee uses."""
    field, text, value = ROWS[name]
    before = {"deliveryGuarantee": "exactly-once"}
    if field != "idempotence_id":
        before["checkpointLocation"] = "/data/c"
        check_only_field(
            write(before, streaming=True),
            write(before | {change(name): text}, streaming=True),
            field,
            value,
        )
    else:
        after = write(before | {change(name): text}, streaming=True)
        assert after == WriteOptions(
            after.client, guarantee=Guarantee.EXACTLY_ONCE, idempotence_id=value
        )


def test_every_honoured_option_is_tested_here() -> None:
    """An option added to the table is added to these tests."""
    authentication = {spec.name for spec in specs_of(AuthenticationOptions)}
    others = {"service.url", "queryName", *authentication}
    honoured = {s.name for s in OPTIONS if s.available and s.scope & Scope.WRITE}
    assert honoured == others | set(ROWS) | TLS | OF_ENCRYPTION | FAILOVER
    streams = {s.name for s in OPTIONS if s.scope is Scope.STREAM_WRITE}
    assert streams == {"commitTopic", "checkpointLocation", "queryName"}
    assert not [s.name for s in OPTIONS if s.scope is Scope.BATCH_WRITE]


def test_one_schema() -> None:
    """Who names the schema's topic says nothing else of the schema."""
    for name in ("schemaType", "schematype"):
        (only,) = problems({"schemaTopic": "t", name: "json"})
        assert only.startswith("schemaTopic and schemaType exclude each other")
    assert write({"schemaTopic": "t", "schemaType": "auto"}).schema_topic


# Names of options


@pytest.mark.parametrize(
    ("alias", "text", "field", "value"),
    [
        (P + "batchingType", "KeyBased", "key_based_batching", True),
        ("pulsarProducerCompressionType", "LZ4", "compression_type", "LZ4"),
    ],
)
def test_aliases(alias: str, text: str, field: str, value: Any) -> None:
    """Other names of an option set the same field."""
    assert getattr(write({alias: text}), field) == value


def test_a_path(caplog: pytest.LogCaptureFixture) -> None:
    """It is Spark's own, such as the location of a table: it names no topic."""
    for path in ("file:/warehouse/t", "/warehouse/t"):
        assert write({"path": path}) == write()
    assert "no effect on this write, and are ignored: path" in caplog.text


@pytest.mark.parametrize(("call", "streaming"), [("save", False), ("start", True)])
def test_a_topic_as_a_path(call: str, streaming: bool) -> None:
    """It is answered with the option; beside that a topic of another name is none."""
    for path in ("u", "public/default/u", "persistent://public/default/u"):
        some = {"path": path}
        (only,) = problems(some, streaming=streaming)
        assert only == f"Topics are no paths: use .option('topic', ...) and {call}()."
        assert write(some | {"topic": "u"}).topic == TopicName("public", "default", "u")
        (only,) = problems(some | {"topic": "t"}, streaming=streaming)
        assert only.startswith(f"{call}('{path}') names another topic than")


OF_READS = [
    spec
    for spec in OPTIONS
    if spec.scope in Scope.READ
    and spec.name not in ("topics", "topicsPattern", "encryption.privateKeys")
]


@pytest.mark.parametrize("spec", OF_READS, ids=lambda s: s.name)
def test_options_of_reads(spec: Any, caplog: pytest.LogCaptureFixture) -> None:
    """One set of options serves a read and a write, with a warning."""
    for text, streaming in product((SECRET, "", "false"), (False, True)):
        assert write({spec.name: text}, streaming=streaming) == write(
            streaming=streaming
        )
    (record,) = caplog.records
    assert record.getMessage() == (
        f"These options have no effect on this write, and are ignored: {spec.name}"
    )


@pytest.mark.parametrize(
    ("name", "text", "beside"),
    [
        (P + "batchingMaxMessages", "5", {P + "batchingEnabled": "true"}),
        (P + "batchingMaxBytes", "5", {P + "batchingEnabled": "true"}),
        (P + "batchingMaxPublishDelayMicros", "5", {P + "batchingEnabled": "true"}),
        (P + "batcherBuilder", "KEY_BASED", {P + "batchingEnabled": "true"}),
        (P + "chunkMaxMessageSize", "5", {P + "chunkingEnabled": "true"}),
    ],
)
def test_options_without_effect(
    name: str, text: str, beside: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    """What changes nothing without another option is a warning."""
    (switch,) = beside
    write({name: text} | beside)
    assert not caplog.records
    write({name: text, switch: "false"})
    assert f"on this write, and are ignored: {name}" in caplog.text


def test_no_limits() -> None:
    """0 is no limit, as in Java's client."""
    options = write({P + "batchingMaxMessages": "0", P + "batchingMaxBytes": "0"})
    assert options.batching_max_messages == 2**31 - 1
    assert options.batching_max_bytes == 2**31 - 1


@pytest.mark.parametrize("name", ["topics", "topicsPattern"])
@pytest.mark.parametrize("streaming", [False, True])
def test_several_topics_are_for_the_column(name: str, streaming: bool) -> None:
    """Who would write to several topics learns how."""
    assert problem(name.lower(), "a,b", streaming=streaming) == (
        f"{name} is an option of reading: name the topic of all rows by topic, or that"
        " of each row in the column __topic."
    )


def test_names_that_spark_adds(caplog: pytest.LogCaptureFixture) -> None:
    """What Spark itself puts among the options of a stream changes nothing."""
    added = PLACE | {"queryname": "q"}
    assert write(added, streaming=True) == write(streaming=True)
    assert not caplog.records


def test_batch_writes_ignore_options_of_streams(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """One set of options serves a stream and its backfill, with a warning."""
    shared = PLACE | {"queryName": "q", "commitTopic": "a,b"}
    result = write(shared | {"deliveryGuarantee": "exactly-once"})
    assert result == write({"deliveryGuarantee": "exactly-once"})
    assert warned(caplog) == ["checkpointLocation", "commitTopic", "queryName"]


# The address and the topic


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (" t ", "persistent://public/default/t"),
        ("persistent://a/b/c", "persistent://a/b/c"),
        ("t-partition-3", "persistent://public/default/t-partition-3"),
    ],
)
def test_topic(text: str, name: str) -> None:
    """A topic, or one of its partitions, has its full name."""
    topic = write({"topic": text}).topic
    assert topic is not None
    assert topic.full_name == name


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "a,b",
            (
                "topic names one topic: use topics for several, and in a write the"
                " column __topic."
            ),
        ),
        ("", "topic is empty: set it or leave it out."),
        ("a/b", "topic: 'a/b' is not a topic name. "),
        ("non-persistent://a/b/c", "topic: 'non-persistent://a/b/c' is a "),
    ],
)
def test_bad_topics(text: str, message: str) -> None:
    """A topic that cannot be is refused under the option's name."""
    assert problem("topic", text).startswith(message)


# Values


@pytest.mark.parametrize(
    ("text", "guarantee"),
    [
        ("none", Guarantee.NONE),
        ("at-least-once", Guarantee.AT_LEAST_ONCE),
        (" Idempotent ", Guarantee.IDEMPOTENT),
        ("EXACTLY-ONCE", Guarantee.EXACTLY_ONCE),
    ],
)
def test_guarantees(text: str, guarantee: Guarantee) -> None:
    """Each guarantee has its word, in any case."""
    assert write({"deliveryGuarantee": text}).guarantee is guarantee


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (
            "compressionType",
            {"NONE": "NONE", "LZ4": "LZ4", "Zlib": "ZLIB", "ZSTD": "ZSTD"}
            | {"snappy": "SNAPPY"},
        ),
        (
            "hashingScheme",
            {
                "javastringhash": "JavaStringHash",
                "Murmur3_32Hash": "Murmur3_32Hash",
                "boosthash": "BoostHash",
            },
        ),
        (
            "messageRoutingMode",
            {"RoundRobinPartition": "RoundRobinPartition"}
            | {
                "RoundRobin": "RoundRobinPartition",
                "SINGLEPARTITION": "SinglePartition",
            },
        ),
        (
            "accessMode",
            {"SHARED": "Shared", "exclusive": "Exclusive"}
            | {"WaitForExclusive": "WaitForExclusive"}
            | {"exclusivewithfencing": "ExclusiveWithFencing"},
        ),
        ("keyEncoding", {"Text": "text", "bytes": "bytes"}),
        (
            "batcherBuilder",
            {"default": False, "KEY_BASED": True, "KeyBased": True, "keybased": True},
        ),
        ("batchingType", {"Default": False, "KeyBased": True, "KEY_BASED": True}),
    ],
)
def test_words(name: str, words: dict[str, Any]) -> None:
    """Words are read in any case, and kept as Java and the protocol spell them."""
    spec = next(s for s in OPTIONS if P + name in (s.name, *s.aliases))
    field = GIVEN[spec.name][0]
    for text, value in words.items():
        assert getattr(write({P + name: f" {text} "}), field) == value


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        (
            "deliveryGuarantee",
            "exactly_once",
            (
                "must be none, at-least-once, idempotent or exactly-once, not"
                " 'exactly_once'."
            ),
        ),
        ("topicAutoCreation", "maybe", "must be true or false, not 'maybe'."),
        (P + "batchingEnabled", "1", "must be true or false, not '1'."),
        (P + "batchingMaxPublishDelayMicros", "0", "must be between 1 and 86400000000"),
        (P + "batchingMaxPublishDelayMicros", "1ms", "must be a whole number"),
        (P + "batchingMaxMessages", "-1", "must be between 1 and 2147483647, not -1."),
        (P + "batchingMaxMessages", "x", "must be a whole number, not 'x'."),
        (P + "batchingMaxBytes", "-1", "must be a number of bytes such as"),
        (P + "batchingMaxBytes", "2g", "must be between 1 and 2147483647, not"),
        (P + "batcherBuilder", "x", "must be DEFAULT or KEY_BASED, not 'x'."),
        (
            P + "compressionType",
            "gzip",
            "must be NONE, LZ4, ZLIB, ZSTD or SNAPPY, not 'gzip'.",
        ),
        (P + "chunkingEnabled", "yes", "must be true or false, not 'yes'."),
        (P + "chunkMaxMessageSize", "0", "must be between 1 and 2147483647, not 0."),
        (P + "chunkMaxMessageSize", "-2", "must be a number of bytes such as"),
        (P + "sendTimeoutMs", "-1", "must be between 0 and 86400000, not -1."),
        (P + "sendTimeoutMs", "86400001", "must be between 0 and 86400000, not"),
        (
            P + "hashingScheme",
            "crc",
            "must be JavaStringHash, Murmur3_32Hash or BoostHash, not 'crc'.",
        ),
        (
            P + "messageRoutingMode",
            "Any",
            "must be RoundRobinPartition or SinglePartition, not 'Any'.",
        ),
        (
            P + "messageRoutingMode",
            " customPartition ",
            (
                "cannot be CustomPartition: name the partition of each row in the"
                " column __partition."
            ),
        ),
        (
            P + "accessMode",
            "mine",
            (
                "must be Shared, Exclusive, WaitForExclusive or ExclusiveWithFencing,"
                " not 'mine'."
            ),
        ),
        (P + "producerName", " ", "is empty: set it or leave it out."),
        (P + "initialSequenceId", "-1", "must be between 0 and 4611686018427387904"),
        (P + "initialSequenceId", str(2**62 + 1), "must be between 0 and"),
        (P + "keyEncoding", "utf8", "must be text or bytes, not 'utf8'."),
    ],
)
def test_bad_values(name: str, text: str, message: str) -> None:
    """A value that cannot be is refused under the option's canonical name."""
    assert problem(name.lower(), text).startswith(f"{name} {message}")


@pytest.mark.parametrize(
    ("name", "text", "field", "value"),
    [
        (
            P + "batchingMaxPublishDelayMicros",
            "1",
            "batching_max_publish_delay_s",
            1e-6,
        ),
        (P + "batchingMaxPublishDelayMicros", "86400000000", None, 86_400.0),
        (P + "batchingMaxMessages", str(2**31 - 1), None, 2**31 - 1),
        (P + "batchingMaxBytes", "1", None, 1),
        (P + "batchingMaxBytes", str(2**31 - 1), None, 2**31 - 1),
        (P + "chunkMaxMessageSize", " -1 ", None, -1),
        (P + "chunkMaxMessageSize", "1", None, 1),
        (P + "sendTimeoutMs", "0", None, 0.0),
        (P + "sendTimeoutMs", "86400000", None, 86_400.0),
        (P + "initialSequenceId", str(2**62), None, 2**62),
    ],
)
def test_limits_of_ranges(name: str, text: str, field: str | None, value: Any) -> None:
    """The ends of a range belong to it."""
    assert getattr(write({name: text}), field or GIVEN[name][0]) == value


@pytest.mark.parametrize(
    "text",
    [
        "a=b",
        "[]",
        '"a"',
        "null",
        '[["a", "b"]]',
        '{"a": 1}',
        '{"a": null}',
        '{"a": {"b": "c"}}',
        '{"a": ["b"]}',
        '{"a": "\\ud800"}',
        '{"\\udfff": "a"}',
        '{"a": "b"} x',
        "[" * 100_000,
        '{"a": ' + "9" * 5000 + "}",
    ],
)
def test_bad_properties(text: str) -> None:
    """What is no object of strings is refused without repeating it."""
    assert problem(P + "properties", text) == (
        "pulsar.producer.properties must be a JSON object of strings such as"
        ' {"team": "billing"}.'
    )


def test_properties_are_named_once() -> None:
    """JSON can name one twice; which was meant nobody knows."""
    assert problem(P + "properties", '{"a": "1", "b": "2", "a": "1"}') == (
        "pulsar.producer.properties names a property twice."
    )


@given(st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=4))
def test_properties_are_kept_in_order(properties: dict[str, str]) -> None:
    """Any names and values are read back as they were, in their order."""
    result = write({P + "properties": json.dumps(properties)}).producer_properties
    assert result == tuple(properties.items())


# Identity of a write


@pytest.mark.parametrize(
    "text", ["a/b", "a b", "ä", "a\nb", "a\n!", "x" * 201, "a,b", "a+b", "\u0661", ","]
)
@pytest.mark.parametrize("streaming", [False, True])
def test_bad_idempotence_ids(text: str, streaming: bool) -> None:
    """What could not stand in the names of producers and topics is refused."""
    bad = {"deliveryGuarantee": "exactly-once", "idempotenceId": text}
    (only,) = problems(bad, streaming=streaming)
    shown = text if len(text) <= 40 else text[:37] + "..."
    assert only == (
        "idempotenceId must be at most 200 letters, digits and characters of"
        f" . _ - : =, not {shown!r}."
    )


@pytest.mark.parametrize(
    ("guarantee", "streaming"),
    [("idempotent", True), ("idempotent", False), ("exactly-once", True)],
)
def test_idempotence_id_given(guarantee: str, streaming: bool) -> None:
    """The id given is the id, whatever the place of the checkpoint."""
    longest = "x" * 200
    place = PLACE if streaming else {}
    some = {"deliveryGuarantee": guarantee, "idempotenceId": longest} | place
    assert write(some, streaming=streaming).idempotence_id == longest


def test_an_exactly_once_batch_write_has_no_id() -> None:
    """It would not be repeatable by it, so it is told what is."""
    (only,) = problems({"deliveryGuarantee": "exactly-once", "idempotenceId": "x"})
    assert "a repeat of it after it succeeded would store all rows twice" in only
    assert "Use deliveryGuarantee=idempotent with idempotenceId" in only


def test_idempotence_id_of_a_checkpoint() -> None:
    """Without one given, it is made of the place's last part and its digest."""
    some = {"deliveryGuarantee": "exactly-once"} | PLACE
    digest = hashlib.sha256(b"/data/checkpoints/orders").hexdigest()
    assert f"orders-{digest[:12]}" == PLACE_ID
    assert write(some, streaming=True).idempotence_id == PLACE_ID


def place_id(place: str) -> str:
    """The id of an exactly-once stream with its checkpoint there."""
    result = write(
        {"deliveryGuarantee": "exactly-once", "checkpointLocation": place},
        streaming=True,
    )
    assert result.idempotence_id is not None
    return result.idempotence_id


@pytest.mark.parametrize(
    "place",
    [
        "/data/checkpoints/orders/",
        "/data/checkpoints/orders//",
        " /data/checkpoints/orders ",
        "file:/data/checkpoints/orders",
        "file:///data/checkpoints/orders/",
        "FILE:///data/checkpoints/orders",
    ],
)
def test_spellings_of_one_place(place: str) -> None:
    """A restart that spells the place in another way has the same id."""
    assert place_id(place) == PLACE_ID


def test_places_of_one_name() -> None:
    """Checkpoints that share their last part have ids of their own."""
    places = [
        "/data/checkpoints/orders",
        "/data/Checkpoints/orders",
        "data/checkpoints/orders",
        "hdfs://nn/data/checkpoints/orders",
        "hdfs:///data/checkpoints/orders",
        "file://data/checkpoints/orders",
        "abfss://one@account/orders",
        "abfss://two@account/orders",
    ]
    ids = [place_id(place) for place in places]
    assert len(set(ids)) == len(places)
    assert all(re.fullmatch("orders-[0-9a-f]{12}", one) for one in ids)


@pytest.mark.parametrize(
    ("place", "stem"),
    [
        ("/a/my stream (new)", "my-stream-new-"),
        ("/a/ünïcode", "n-code-"),
        ("/a/run=1:x_y.z", "run=1:x_y.z-"),
        ("/a/" + "x" * 100, "x" * 64 + "-"),
        ("/", ""),
        ("/a/???", ""),
        (f"s3a://user:{SECRET}@bucket", ""),
        (f"s3a://user:{SECRET}@bucket/", ""),
        (f"s3a://user:{SECRET}@bucket/orders", "orders-"),
    ],
)
def test_names_of_places_are_made_safe(place: str, stem: str) -> None:
    """What cannot stand in a name gives way, and secrets never come into it."""
    assert re.fullmatch(re.escape(stem) + "[0-9a-f]{12}", place_id(place))


@given(st.text(min_size=1))
def test_any_place_gives_an_id_that_could_be_given(place: str) -> None:
    """An id made is one that the option itself takes, alone or in part of a name."""
    with contextlib.suppress(OptionError):
        made = place_id(place)
        again = exactly_once({"idempotenceId": made})
        assert again.idempotence_id == made


def test_an_exactly_once_stream_needs_an_identity() -> None:
    """Without it a restart could not find what it left behind."""
    assert problem("deliveryGuarantee", "exactly-once", streaming=True) == (
        "An exactly-once stream needs idempotenceId, or"
        ' .option("checkpointLocation", ...) on the stream itself: a restart finds its'
        " log of commits by it."
    )


@pytest.mark.parametrize("name", ["idempotenceId", "checkpointLocation"])
def test_an_identity_with_a_problem_is_not_missing_as_well(name: str) -> None:
    """One mistake is one problem."""
    bad = {"deliveryGuarantee": "exactly-once", name: " "}
    assert problems(bad, streaming=True) == (
        f"{name} is empty: set it or leave it out.",
    )


@pytest.mark.parametrize(
    ("guarantee", "streaming"),
    [("idempotent", True), ("idempotent", False), ("exactly-once", False)],
)
def test_others_may_lack_an_identity(guarantee: str, streaming: bool) -> None:
    """Tasks know the id of their query, and a batch write makes one up."""
    result = write({"deliveryGuarantee": guarantee}, streaming=streaming)
    assert result.idempotence_id is None


@pytest.mark.parametrize("guarantee", ["none", "at-least-once", "idempotent"])
def test_a_checkpoint_is_no_identity_where_none_is_used(
    guarantee: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Every stream has a checkpoint: that is nothing to warn of.

    An idempotent one goes by the id of its query, which only its tasks know. But the
    log of a scalable topic is found by the checkpoint's place.
    """
    result = write(guaranteed(guarantee), streaming=True)
    assert result.idempotence_id is None
    assert (result.checkpoint_id is not None) is (guarantee == "idempotent")
    assert not caplog.records


# Options of one guarantee

ONLY_WITH = {
    "idempotenceId": ("x", {"idempotent", "exactly-once"}),
    "commitTopic": ("t", {"exactly-once"}),
}


@pytest.mark.parametrize("name", ONLY_WITH)
@pytest.mark.parametrize("guarantee", [one.value for one in Guarantee])
def test_options_of_a_guarantee(name: str, guarantee: str) -> None:
    """With another guarantee they are refused: who sets them wants this one."""
    text, guarantees = ONLY_WITH[name]
    some = guaranteed(guarantee) | {name: text}
    if guarantee in guarantees:
        assert write(some, streaming=True) != write(
            guaranteed(guarantee), streaming=True
        )
    else:
        (only,) = problems(some, streaming=True)
        assert only.startswith(f"{name} needs deliveryGuarantee=")


@pytest.mark.parametrize("guarantee", [one.value for one in Guarantee])
def test_a_limit_of_transactions(
    guarantee: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Where there are none it changes nothing but the log."""
    name = "transactionTimeoutMs"
    without = write(guaranteed(guarantee), streaming=True)
    result = write(guaranteed(guarantee) | {name: "5000"}, streaming=True)
    if guarantee in ("idempotent", "exactly-once"):
        assert result != without
        assert not caplog.records
    else:
        assert result == without
        assert warned(caplog) == [name]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("transactionTimeoutMs", "999", "must be between 1000 and 604800000, not 999."),
        ("transactionTimeoutMs", "604800001", "must be between 1000 and 604800000"),
        ("transactionTimeoutMs", "10m", "must be a whole number, not '10m'."),
        ("commitTopic", "a,b", "names one topic, without a comma."),
        ("commitTopic", "", "is empty: set it or leave it out."),
    ],
)
@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_bad_values_of_one_guarantee(
    name: str, text: str, message: str, guarantee: str
) -> None:
    """They are refused even where the option has no effect, or is refused itself."""
    first, *_ = problems(guaranteed(guarantee) | {name: text}, streaming=True)
    assert first.startswith(f"{name} {message}")


def test_a_bad_commit_topic_is_named() -> None:
    """A topic that cannot be is refused under the option's name."""
    (only,) = problems(
        guaranteed("exactly-once") | {"commitTopic": "a/b"}, streaming=True
    )
    assert only.startswith("commitTopic: 'a/b' is not a topic name. ")


@pytest.mark.parametrize("topic", ["t", "topic://public/default/t"])
def test_the_log_of_commits_is_an_ordinary_topic(topic: str) -> None:
    """Whatever rows go to."""
    log = {"commitTopic": "topic://public/default/log", "topic": topic}
    (only,) = problems(guaranteed("exactly-once") | log, streaming=True)
    assert only.startswith("commitTopic must be an ordinary topic")


@pytest.mark.parametrize(
    ("log", "topic", "same"),
    [
        ("t", "persistent://public/default/t", True),
        ("t-partition-0", "t", True),
        ("t", "t-partition-1", True),
        ("t", "topic://public/default/t", True),
        ("u", "topic://public/default/t", False),
        ("u", "t", False),
        ("a/b/t", "t", False),
    ],
)
def test_the_log_of_commits_has_a_topic_of_its_own(
    log: str, topic: str, same: bool
) -> None:
    """Rows do not go where the log is kept."""
    both = guaranteed("exactly-once") | {"commitTopic": log, "topic": topic}
    if same:
        assert problems(both, streaming=True) == (
            "commitTopic must not be topic: the log of commits is no place for rows.",
        )
    else:
        assert exactly_once(both).commit_topic == TopicName.parse(log)
    assert write(both).topic == TopicName.parse(topic)


# Conflicts

CONFLICTS = {
    "producerName": (
        "x",
        (
            "pulsar.producer.producerName cannot be set with deliveryGuarantee={}: such"
            " a write names its producers itself."
        ),
        {"idempotent", "exactly-once"},
    ),
    "initialSequenceId": (
        "0",
        (
            "pulsar.producer.initialSequenceId cannot be set with deliveryGuarantee={}:"
            " such a write numbers its messages itself."
        ),
        {"idempotent", "exactly-once"},
    ),
    "batchingType": (
        "KeyBased",
        (
            "pulsar.producer.batcherBuilder cannot be KEY_BASED with"
            " deliveryGuarantee={}: sequence ids would not be in order."
        ),
        {"idempotent"},
    ),
    "chunkingEnabled": (
        "true",
        (
            "pulsar.producer.chunkingEnabled cannot be true with deliveryGuarantee={}:"
            " chunks that are sent again would be left over."
        ),
        {"idempotent"},
    ),
}


@pytest.mark.parametrize("name", CONFLICTS)
@pytest.mark.parametrize("guarantee", [one.value for one in Guarantee])
@pytest.mark.parametrize("streaming", [False, True])
def test_conflicts_with_a_guarantee(name: str, guarantee: str, streaming: bool) -> None:
    """What would break a promise is refused where the promise is made."""
    text, message, guarantees = CONFLICTS[name]
    both = {"deliveryGuarantee": guarantee, P + name: text}
    if streaming:
        both |= PLACE
    if guarantee in guarantees:
        assert problems(both, streaming=streaming) == (message.format(guarantee),)
    else:
        assert write(both, streaming=streaming).guarantee.value == guarantee


@pytest.mark.parametrize("guarantee", ["idempotent", "exactly-once"])
def test_harmless_settings_are_no_conflict(guarantee: str) -> None:
    """Saying what holds anyway is no mistake."""
    some = guaranteed(guarantee) | {
        P + "chunkingEnabled": "false",
        P + "batcherBuilder": "DEFAULT",
    }
    assert write(some, streaming=True) == write(guaranteed(guarantee), streaming=True)


def test_chunks_beside_batches() -> None:
    """Large rows go in chunks, and the others in batches."""
    both = {P + "chunkingEnabled": "true", P + "batchingEnabled": "true"}
    result = write(both)
    assert (result.chunking_enabled, result.batching_enabled) == (True, True)


def test_all_problems_are_reported_together() -> None:
    """Nobody has to mend a set of options one problem at a time."""
    with pytest.raises(OptionError) as caught:
        parse_write_options(
            {
                "topic": "a/b",
                "topics": "t",
                "zzz": "1",
                "startingOffsets": "earliest",
                "deliveryguarantee": "idempotent",
                "idempotenceid": "a b",
                "transactiontimeoutms": "1",
                "pulsar.producer.producername": "x",
                "pulsar.producer.initialsequenceid": "5",
                "pulsar.producer.batcherbuilder": "key_based",
                "pulsar.producer.chunkingenabled": "true",
                "pulsar.producer.compressiontype": "x",
                "pulsar.producer.cryptokeyreader": "x",
                "pulsar.client.authparams": "x",
            },
            streaming=True,
        )
    assert sorted(text.split(" ")[0].rstrip(":") for text in caught.value.problems) == [
        "There",
        "idempotenceId",
        "pulsar.client.authParams",
        "pulsar.producer.batcherBuilder",
        "pulsar.producer.chunkingEnabled",
        "pulsar.producer.compressionType",
        "pulsar.producer.cryptoKeyReader",
        "pulsar.producer.initialSequenceId",
        "pulsar.producer.producerName",
        "service.url",
        "topic",
        "topics",
        "transactionTimeoutMs",
    ]


def test_other_problems_show_beside_a_bad_guarantee() -> None:
    """No option escapes its check because the guarantee is not known."""
    found = problems({"deliveryGuarantee": "x", "idempotenceId": "a b"}, streaming=True)
    assert [text.split(" ")[0] for text in found[:2]] == [
        "deliveryGuarantee",
        "idempotenceId",
    ]


# Options of other versions and clients

OF_WRITES = [spec for spec in OPTIONS if spec.scope & Scope.WRITE]
LATER = [spec for spec in OF_WRITES if spec.support is Support.REFUSED]
IGNORED = [spec for spec in OF_WRITES if spec.support is Support.IGNORED]


@pytest.mark.parametrize("spec", LATER, ids=lambda s: s.name)
def test_refused_options(spec: Any, caplog: pytest.LogCaptureFixture) -> None:
    """What would be wrong to drop is refused by name, and its value not shown."""
    hint = f" {spec.hint}" if spec.hint else ""
    for streaming in (False, True):
        message = problem(spec.name, SECRET, streaming=streaming)
        assert message == f"{spec.name} is not supported yet by this version.{hint}"
    assert not caplog.records


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("producerName", "pulsar.producer.producerName"),
        ("sendTimeout", "pulsar.producer.sendTimeoutMs"),
        ("pulsar.producer.batchingMaxMesages", "pulsar.producer.batchingMaxMessages"),
    ],
)
def test_the_nearest_option_of_a_write(name: str, near: str) -> None:
    """It is looked for by its last part, too, among those that have an effect."""
    assert problem(name, "1") == f"There is no option {name!r}. Did you mean {near}?"


def test_hints_of_refused_options() -> None:
    """Who has an option refused is told what to do instead."""
    assert problem(P + "topicName", "t").endswith(" Use topic.")
    assert "column __partition" in problem(P + "customMessageRouter", "x")


def test_schema_types() -> None:
    """They are words in any case; without one the topic and the columns decide."""
    assert write().schema_type == "auto"
    assert write().key_value_encoding == "INLINE"
    assert write({"schemaType": "Local_Date"}).schema_type == "local_date"
    assert write({"keyValueEncodingType": "separated"}).key_value_encoding == (
        "SEPARATED"
    )
    assert "auto, bytes, string, json, avro, key_value" in problem(
        "schemaType", "protobuf"
    )


@pytest.mark.parametrize("spec", IGNORED, ids=lambda s: s.name)
def test_ignored_options(spec: Any, caplog: pytest.LogCaptureFixture) -> None:
    """What is only tuning is accepted with a warning that does not show its value."""
    assert write({spec.name.lower(): SECRET}) == write()
    assert warned(caplog) == [spec.name]


def test_reads_and_writes_warn_apart(caplog: pytest.LogCaptureFixture) -> None:
    """One process reads and writes; each is told what it does without."""
    some = BASE | {"topic": "t", "pulsar.client.numIoThreads": "4"}
    for _ in range(2):
        parse_read_options(some)
        parse_write_options(some, streaming=False)
    assert [record.getMessage().split(",")[0] for record in caplog.records] == [
        "These options have no effect on this read",
        "These options have no effect on this write",
    ]


def test_quiet(caplog: pytest.LogCaptureFixture) -> None:
    """On request nothing is said of options that have no effect."""
    some = BASE | {P + "multiSchema": "true", "transactionTimeoutMs": "5000"}
    parse_write_options(some, streaming=False, quiet=True)
    assert not caplog.records
    parse_write_options(some, streaming=False)
    assert warned(caplog) == [P + "multiSchema", "transactionTimeoutMs"]


# Secrets


@pytest.mark.parametrize(
    "key",
    [
        "pulsar.client.authParams",
        "pulsarClientAuthParams",
        "pulsar.client.tlsKeyStorePassword",
        "pulsar.client.authParms",
        "encryption.publicKeys",
        "encryption.keys",
        "encryption.privateKeys",
        "pulsar.producer.cryptoKeyReader",
        "pulsar.producer.properties",
    ],
)
def test_secrets_are_not_in_errors(key: str, caplog: pytest.LogCaptureFixture) -> None:
    """An error about an option that may hold a secret does not show its value."""
    with pytest.raises(OptionError) as caught:
        write({key: f"token:{SECRET}", P + "batchingMaxMessages": "x"})
    error = caught.value
    assert len(error.problems) == 2
    assert SECRET not in f"{error} {error!r} {error.__context__!r} {caplog.text}"
    assert SECRET.encode() not in pickle.dumps(error)


def test_options_hold_no_secret() -> None:
    """Neither the admin client's secrets nor those of a checkpoint's URL are kept."""
    result = exactly_once(
        {
            "pulsar.admin.authParams": SECRET,
            "checkpointlocation": f"s3a://key:{SECRET}@bucket/c",
        }
    )
    assert SECRET not in repr(result)
    assert SECRET.encode() not in pickle.dumps(result)


# Anything


texts = st.text(max_size=20) | st.sampled_from(
    ["true", "1", "-1", "idempotent", "exactly-once", "KeyBased", "{}", "t", "/"]
)
keys = st.sampled_from([s.name for s in OPTIONS if s.scope & Scope.WRITE])


@given(st.dictionaries(keys | st.text(max_size=12), texts), st.booleans())
def test_any_options_are_values_or_an_option_error(
    given_options: dict[str, str], streaming: bool
) -> None:
    """No options make the parser fail in another way."""
    with contextlib.suppress(OptionError):
        result = parse_write_options(BASE | given_options, streaming=streaming)
        hash(result)
        assert pickle.loads(pickle.dumps(result)) == result  # noqa: S301


@pytest.mark.parametrize(
    "given",
    [
        {"idempotenceId": "price-markers"},
        {"commitTopic": "persistent://public/default/log-of-markers"},
        {"idempotenceId": "q-markers", "commitTopic": "log"},
    ],
)
def test_names_like_those_of_markers(given: dict[str, str]) -> None:
    """They clash with another log alone; streams that have them can be started."""
    both = guaranteed("exactly-once") | given
    assert write(both, streaming=True).guarantee.value == "exactly-once"
