# SPDX-License-Identifier: Apache-2.0
"""Tests of `pulsar_spark.options`: what a read takes."""

from __future__ import annotations

import contextlib
import json
import pickle
from collections.abc import Callable
from dataclasses import fields, replace
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_spark.errors import OptionError
from pulsar_spark.message_id import MessageId
from pulsar_spark.options import (
    METADATA_COLUMNS_ALL,
    METADATA_COLUMNS_DEFAULT,
    OPTIONS,
    ClientOptions,
    FilterPushdown,
    ReadOptions,
    Scope,
    ServiceUrl,
    Support,
    options_table_markdown,
    parse_read_options,
)
from pulsar_spark.options.authentication import AuthenticationOptions
from pulsar_spark.options.offsets import OffsetsSpec, TimesSpec
from pulsar_spark.options.read import LATEST_SCHEMA
from pulsar_spark.options.tls import TlsOptions
from pulsar_spark.topics import TopicName
from spark_topics.options import given as module
from spark_topics.options.offsets import Edge
from spark_topics.options.spec import specs_of

SECRET = "eyJhbGciOiJIUzI1NiJ9.c2VjcmV0"
BASE = {"service.url": "pulsar://localhost:6650", "topic": "t"}
T = "persistent://public/default/t"


@pytest.fixture(autouse=True)
def _nothing_warned_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_warned", set())


def pickled(value: Any) -> Any:
    """The value as another process receives it."""
    return pickle.loads(pickle.dumps(value))  # noqa: S301 - our own bytes


def read(*, streaming: bool = False, **extra: str) -> ReadOptions:
    """Options of a read of one topic, dots of names written as two underscores."""
    given = {key.replace("__", "."): text for key, text in extra.items()}
    return parse_read_options(BASE | given, streaming=streaming)


def problems_of(parse: Callable[[], object]) -> tuple[str, ...]:
    """The problems for which a call refuses options, in sentences."""
    with pytest.raises(OptionError) as caught:
        parse()
    assert all(problem.endswith((".", "?")) for problem in caught.value.problems)
    return caught.value.problems


def problems(given: dict[str, str], *, streaming: bool = False) -> tuple[str, ...]:
    """The problems for which options are refused."""
    return problems_of(lambda: parse_read_options(given, streaming=streaming))


def problem(name: str, text: str, *, streaming: bool = False) -> str:
    """The only problem of one option besides the required ones."""
    (only,) = problems(BASE | {name: text}, streaming=streaming)
    return only


# Defaults and types


def test_defaults_of_a_batch_read() -> None:
    """With nothing but the required options, the documented defaults hold."""
    assert parse_read_options(BASE) == ReadOptions(
        client=ClientOptions(service_url=ServiceUrl("pulsar", ("localhost:6650",))),
        topics=(TopicName("public", "default", "t"),),
    )


def test_stream_starts_at_latest() -> None:
    """A stream starts at latest; what JSON does not name starts at earliest."""
    assert read(streaming=True).starting_offsets == OffsetsSpec(Edge.LATEST)
    some = read(streaming=True, startingOffsets='{"t":{"0":"1:2"}}').starting_offsets
    assert some.default is Edge.EARLIEST
    explicit = read(streaming=True, startingOffsets="earliest").starting_offsets
    assert explicit == OffsetsSpec(Edge.EARLIEST)


def test_defaults_of_a_stream() -> None:
    """A stream's defaults are those of a batch read but for its start."""
    expected = replace(read(), starting_offsets=OffsetsSpec(Edge.LATEST))
    assert read(streaming=True) == expected


GIVEN: dict[str, tuple[str, str, Any]] = {
    "failOnDataLoss": ("fail_on_data_loss", "False", False),
    "failOnUnreachedEnd": ("fail_on_unreached_end", "false", False),
    "waitingForNonExistedTopic": ("waiting_for_non_existed_topic", " TRUE ", True),
    "topicWaitTimeoutMs": ("topic_wait_timeout_s", "1500", 1.5),
    "pollTimeoutMs": ("poll_timeout_s", "250", 0.25),
    "rowsPerArrowBatch": ("rows_per_arrow_batch", "5", 5),
    "bytesPerArrowBatch": ("bytes_per_arrow_batch", "8m", 8 << 20),
    "startingTimeStrategy": ("starting_time_strategy", "ERROR", "error"),
    "startingOffsets": (
        "starting_offsets",
        '{"t":{"0":"1:2:3"}}',
        OffsetsSpec(Edge.EARLIEST, {f"{T}-partition-0": MessageId(1, 2, 3)}),
    ),
    "endingOffsets": (
        "ending_offsets",
        '{"t":{"0":"1:2:3"}}',
        OffsetsSpec(Edge.LATEST, {f"{T}-partition-0": MessageId(1, 2, 3)}),
    ),
    "startingTime": ("starting_times", "1970-01-02", TimesSpec(86_400_000)),
    "endingTime": ("ending_times", '{"t":5}', TimesSpec(None, {T: 5})),
    "minPartitions": ("min_partitions", "8", 8),
    "maxPartitions": ("max_partitions", "200", 200),
    "maxRecordsPerPartition": ("max_records_per_partition", "100000", 100_000),
    "filterPushdown": (
        "filter_pushdown",
        "true, 10m",
        FilterPushdown(600.0),
    ),
    "metadataColumns": ("metadata_columns", "none", ()),
    "schemaVersion": ("schema_version", " 12 ", 12),
    "mode": ("mode", "permissive", "PERMISSIVE"),
    "columnNameOfCorruptRecord": ("corrupt_record_column", " bad ", "bad"),
    "allowDifferentTopicSchemas": ("allow_different_topic_schemas", "True", True),
    "jsonBytes": ("json_bytes", "UTF8", "utf8"),
    "timeZone": ("time_zone", "Europe/Berlin", "Europe/Berlin"),
    "pulsar.reader.receiverQueueSize": ("receiver_queue_size", "7", 7),
    "pulsar.reader.readCompacted": ("read_compacted", "true", True),
    "pulsar.consumer.properties": (
        "consumer_properties",
        '{"team": "a"}',
        (("team", "a"),),
    ),
    "pulsar.reader.readerName": ("reader_name", "me", "me"),
    "pulsar.reader.subscriptionRolePrefix": ("subscription_role_prefix", "p", "p"),
    "pulsar.reader.maxPendingChunkedMessage": ("max_pending_chunked_message", "3", 3),
    "pulsar.reader.expireTimeOfIncompleteChunkedMessageMillis": (
        "expire_incomplete_chunk_s",
        "0",
        0.0,
    ),
}
STREAM_GIVEN: dict[str, tuple[str, str, Any]] = {
    "schemaEvolution": ("schema_evolution", "Additive", "additive"),
    "partitionDiscoveryIntervalMs": ("partition_discovery_interval_s", "0", 0.0),
    "lagAgeIntervalMs": ("lag_age_interval_s", "0", 0.0),
    "orderByKey": ("order_by_key", "False", False),
    "predefinedSubscription": ("predefined_subscription", " Mine ", "Mine"),
    "ackOnCommit": ("ack_on_commit", "False", False),
    "deleteSubscriptionOnStop": ("delete_subscription_on_stop", "TRUE", True),
    "maxRowsPerTrigger": ("max_rows_per_trigger", "1", 1),
    "maxBytesPerTrigger": ("max_bytes_per_trigger", "2g", 2 << 30),
    "minRowsPerTrigger": ("min_rows_per_trigger", str(2**63 - 1), 2**63 - 1),
    "pulsar.consumer.replicateSubscriptionState": (
        "replicate_subscription_state",
        "true",
        True,
    ),
    "pulsar.consumer.subscriptionProperties": (
        "subscription_properties",
        '{"owner": "b"}',
        (("owner", "b"),),
    ),
    "maxTriggerDelay": ("max_trigger_delay_s", "90s", 90.0),
}
CLIENT_GIVEN: dict[str, tuple[str, str, Any]] = {
    "subscriptionPrefix": ("subscription_prefix", "jobs", "jobs"),
    "pulsar.client.operationTimeoutMs": ("operation_timeout_s", "1", 0.001),
    "pulsar.client.connectionTimeoutMs": ("connection_timeout_s", "2000", 2.0),
    "pulsar.client.lookupTimeoutMs": ("lookup_timeout_s", "3000", 3.0),
    "pulsar.client.keepAliveIntervalSeconds": ("keep_alive_interval_s", "4", 4.0),
    "pulsar.client.initialBackoffIntervalNanos": (
        "initial_backoff_s",
        "50000000",
        0.05,
    ),
    "pulsar.client.maxBackoffIntervalNanos": ("max_backoff_s", "6000000000", 6.0),
    "pulsar.client.maxLookupRedirects": ("max_lookup_redirects", "0", 0),
    "pulsar.client.connectionMaxIdleSeconds": ("connection_max_idle_s", "-1", -1.0),
    "pulsar.client.concurrentLookupRequest": ("concurrent_lookup_request", "7", 7),
    "pulsar.client.maxLookupRequest": ("max_lookup_request", "70", 70),
    "pulsar.client.memoryLimitBytes": ("memory_limit_bytes", "1g", 1 << 30),
    "pulsar.client.statsIntervalSeconds": ("stats_interval_s", "0", 0.0),
    "pulsar.client.listenerName": ("listener_name", "outside", "outside"),
}
ROWS = GIVEN | STREAM_GIVEN | CLIENT_GIVEN

#: Tested in test_tls.py.
TLS = {spec.name for spec in specs_of(TlsOptions)}
#: In tests/options/test_encryption.py.
OF_ENCRYPTION = {
    "encryption.privateKeys",
    "encryption.required",
    "pulsar.reader.cryptoFailureAction",
}
#: In tests/options/test_failover.py, because not every use takes it.
FAILOVER = {"pulsar.client.serviceUrlProvider"}


@pytest.mark.parametrize("name", ROWS)
def test_each_option_reaches_its_field(name: str) -> None:
    """An option in any case sets its one field to a typed value."""
    field, text, value = ROWS[name]
    streaming = name in STREAM_GIVEN
    default = parse_read_options(BASE, streaming=streaming)
    same = default if hasattr(default, field) else default.client
    for spelling in (name, name.lower(), name.upper()):
        result = parse_read_options(BASE | {spelling: text}, streaming=streaming)
        holder = result if hasattr(result, field) else result.client
        assert getattr(holder, field) == value
        assert type(getattr(holder, field)) is type(value)
        others = [f.name for f in fields(holder) if f.name not in ("client", field)]
        assert all(getattr(holder, f) == getattr(same, f) for f in others)


#: Those of tests/options/test_authentication.py.
AUTHENTICATION = {spec.name for spec in specs_of(AuthenticationOptions)}


def test_every_honoured_option_is_tested_here() -> None:
    """An option added to the table is added to these tests."""
    others = {"service.url", "topic", "topics", "topicsPattern", *AUTHENTICATION, *TLS}
    honoured = {s.name for s in OPTIONS if s.available and s.scope & Scope.READ}
    assert honoured == others | set(ROWS) | OF_ENCRYPTION | FAILOVER
    streams = {spec.name for spec in OPTIONS if spec.scope is Scope.STREAM}
    assert streams == set(STREAM_GIVEN)


def test_options_survive_pickling() -> None:
    """Options can be sent to executors."""
    result = parse_read_options(
        {"service.url": "pulsar://h", "topicsPattern": "a/b/c.*", "startingTime": "5"}
    )
    assert pickled(result) == result


# Names of options


@pytest.mark.parametrize(
    ("alias", "text", "field"),
    [
        ("startingTimestamp", "5", "starting_times"),
        ("endingTimestamp", "5", "ending_times"),
        ("pulsarReaderReceiverQueueSize", "5", "receiver_queue_size"),
    ],
)
def test_aliases(alias: str, text: str, field: str) -> None:
    """Other names of an option set the same field."""
    given_so = parse_read_options(BASE | {alias: text})
    assert getattr(given_so, field) != getattr(read(), field)


@pytest.mark.parametrize(
    ("alias", "text", "field"),
    [
        ("pulsar.reader.subscriptionName", "mine", "predefined_subscription"),
        ("maxOffsetsPerTrigger", "5", "max_rows_per_trigger"),
        ("minOffsetsPerTrigger", "5", "min_rows_per_trigger"),
    ],
)
def test_aliases_on_streams(alias: str, text: str, field: str) -> None:
    """Names that Kafka's and Java's users bring along set the same field."""
    given_so = parse_read_options(BASE | {alias: text}, streaming=True)
    assert getattr(given_so, field) != getattr(read(streaming=True), field)


@pytest.mark.parametrize(
    "name", ["serviceUrl", "serviceurl", "pulsar.client.serviceUrl"]
)
def test_service_url_has_aliases(name: str) -> None:
    """The address of the service has the names that other connectors give it."""
    result = parse_read_options({name: "pulsar://h", "topic": "t"})
    assert result.client.service_url.hosts == ("h:6650",)


def test_names_are_distinct() -> None:
    """No two options share a name or an alias, case and dots apart."""
    owners: dict[str, str] = {}
    for spec in OPTIONS:
        for key in (spec.name, *spec.aliases):
            plain = key.lower().replace(".", "")
            assert owners.setdefault(plain, spec.name) == spec.name


def test_option_given_twice() -> None:
    """Two names of one option may agree, and must not differ."""
    both = BASE | {"serviceUrl": BASE["service.url"]}
    assert parse_read_options(both) == parse_read_options(BASE)
    (only,) = problems(BASE | {"serviceUrl": "pulsar://other"})
    assert only == (
        "service.url is given twice with different values, as service.url and as"
        " serviceUrl."
    )


@pytest.mark.parametrize(
    ("key", "near"),
    [
        ("startingoffset", "startingOffsets"),
        ("toipcs", "topics"),
        ("deliveryguarante", "deliveryGuarantee"),
        ("checkpointlocatoin", "checkpointLocation"),
        ("pulsar.client.operationtimeout", "pulsar.client.operationTimeoutMs"),
        ("pulsar.reader.readcompact", "pulsar.reader.readCompacted"),
        ("readerName", "pulsar.reader.readerName"),
        ("useTls", "pulsar.client.useTls"),
        ("tls_trust_certs_file_path", "pulsar.client.tlsTrustCertsFilePath"),
        ("subscriptionName", "predefinedSubscription"),
        ("producerName", "pulsar.producer.producerName"),
    ],
)
def test_unknown_option_names_the_nearest(key: str, near: str) -> None:
    """A slip in a name is answered with the right name, properly spelt."""
    message = problem(key, "1")
    assert message == f"There is no option {key!r}. Did you mean {near}?"


def test_unknown_option_without_a_neighbour() -> None:
    """A name like no other is refused without a guess, and without its value."""
    assert problem("zzz", SECRET) == "There is no option 'zzz'."


def test_load_with_a_path_points_to_topic(caplog: pytest.LogCaptureFixture) -> None:
    """A topic given as a path is answered with the option to use.

    Beside a topic it is Spark's own, such as the location of a table.
    """
    (only,) = problems({"service.url": "pulsar://h", "path": "t"})
    assert only == "Topics are no paths: use .option('topic', ...) and load()."
    (only,) = problems(BASE | {"path": "another"})
    assert only == (
        "load('another') names another topic than the options do: topics are no paths,"
        " leave it out."
    )
    several = {"service.url": "pulsar://h", "topics": "t,u"}
    assert parse_read_options({**several, "path": "t,u"}).topics
    assert read(path="persistent://public/default/t") == read()
    assert read(path="file:/warehouse/t") == read()
    assert "no effect on this read, and are ignored: path" in caplog.text


# Topics


def test_topics_collapse() -> None:
    """Topics keep their order, and forms of one name collapse."""
    result = parse_read_options(
        {"service.url": "pulsar://h", "topics": f"t, b/c/d,{T},t-partition-1,,"}
    )
    assert [topic.full_name for topic in result.topics] == [
        T,
        "persistent://b/c/d",
        f"{T}-partition-1",
    ]
    assert result.topics_pattern is None


def test_topics_pattern() -> None:
    """A pattern stands instead of names."""
    result = parse_read_options({"service.url": "pulsar://h", "topicsPattern": "ev.*"})
    assert result.topics == ()
    assert result.topics_pattern is not None
    assert result.topics_pattern.matches("persistent://public/default/events")


def test_one_way_to_choose_topics() -> None:
    """Exactly one of the three options must be there."""
    assert problems({"service.url": "pulsar://h"}) == (
        "One of topic, topics and topicsPattern is required.",
    )
    assert problem("topics", "u") == (
        "topic and topics cannot be used together: choose one."
    )
    assert (
        "topic and topics and topicsPattern"
        in problems(BASE | {"topics": "u", "topicsPattern": "v"})[-1]
    )


@pytest.mark.parametrize(
    ("name", "text", "part"),
    [
        ("topic", "a,b", "use topics for several"),
        ("topic", " ", "topic is empty"),
        ("topic", "a/b", "topic: 'a/b' is not a topic name"),
        ("topic", "non-persistent://a/b/c", "topic: 'non-persistent://a/b/c' is a"),
        ("topics", ",", "topics names no topic"),
        ("topics", "a,b/c", "topics: 'b/c' is not a topic name"),
        ("topicsPattern", "(", "topicsPattern: '(' is not a valid Python regular"),
    ],
)
def test_bad_topics(name: str, text: str, part: str) -> None:
    """A topic that cannot be is refused under the option's name."""
    (only,) = problems({"service.url": "pulsar://h", name: text})
    assert part in only


# Ranges


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"startingOffsets": "earliest"}, {"startingTime": "5"}),
        ({"endingOffsets": "latest"}, {"endingTime": "5"}),
    ],
)
def test_offsets_and_times_exclude_each_other(
    one: dict[str, str], other: dict[str, str]
) -> None:
    """One end of a range is given in one way."""
    (only,) = problems(BASE | one | other)
    names = " and ".join([*one, *other])
    assert only == f"{names} cannot be used together: choose one."


@pytest.mark.parametrize(
    ("name", "text", "part"),
    [
        ("startingOffsets", "latest", "cannot be latest in a batch read"),
        ("startingOffsets", '{"t":-1}', f"cannot be latest for {T} in a batch read"),
        ("endingOffsets", "earliest", "cannot be earliest in a batch read"),
        ("endingOffsets", '{"t":-2}', f"cannot be earliest for {T} in a batch read"),
        ("endingOffsets", '{"*":-2}', "cannot be earliest in a batch read"),
        ("endingOffsets", '{"t":-2,"*":-2}', f"cannot be earliest for {T} in a batch"),
    ],
)
def test_batch_read_needs_a_range(name: str, text: str, part: str) -> None:
    """A batch read that could only be empty is refused."""
    message = problem(name, text)
    assert message.startswith(name)
    assert part in message


@pytest.mark.parametrize("other", ["t", "*"])
@pytest.mark.parametrize(
    ("name", "word"), [("startingOffsets", "latest"), ("endingOffsets", "earliest")]
)
def test_nothing_of_some_topic_partitions(name: str, word: str, other: str) -> None:
    """It is no mistake where something is read of others."""
    parsed = read(**{name: f'{{"u":"12:3","{other}":"{word}"}}'})
    offsets = parsed.starting_offsets if word == "latest" else parsed.ending_offsets
    assert offsets.topics.get(T, offsets.default) is Edge(word)


def test_what_times_do_not_name_is_read_whole() -> None:
    """In streams, too, which begin at the latest row otherwise."""
    times = {"startingTime": '{"t":5}'}
    assert read(streaming=True, **times).starting_offsets.default is Edge.EARLIEST
    times = {"startingTime": '{"t":5,"*":6}'}
    assert read(streaming=True, **times).starting_times == TimesSpec(6, {T: 5})
    assert read(streaming=True).starting_offsets.default is Edge.LATEST


def test_times_must_not_be_reversed() -> None:
    """A range ends after its start."""
    (only,) = problems(BASE | {"startingTime": "6", "endingTime": "5"})
    assert only == "startingTime must not be later than endingTime."
    assert read(startingTime="5", endingTime="5").ending_times == TimesSpec(5)


def test_streams_that_end() -> None:
    """By positions and by times; at the beginning is a mistake there as well."""
    ends = read(streaming=True, endingOffsets='{"t": "12:3"}').ending_offsets
    assert ends.topics == {T: MessageId(12, 3)}
    assert read(streaming=True, endingTime="5").ending_times == TimesSpec(5)
    assert problem("endingOffsets", "earliest", streaming=True) == (
        "endingOffsets cannot be earliest in a stream: nothing would be read."
    )


@pytest.mark.parametrize(
    ("topics", "words"),
    [
        ({"topic": "t"}, {"t": {"0": "EDGE"}}),
        ({"topics": "t,u"}, {"t": "EDGE"}),
        ({"topicsPattern": "[a-z]"}, {"t": "EDGE"}),
        ({"topic": "t"}, {"t": {"0": "EDGE", "1": "12:3"}}),
    ],
)
def test_one_word_of_several(topics: dict[str, str], words: Any) -> None:
    """What JSON does not name is read whole, unless `*` says that nothing of it is."""
    for name, edge, other in (
        ("startingOffsets", "latest", "earliest"),
        ("endingOffsets", "earliest", "latest"),
    ):
        given = {"service.url": "pulsar://h", **topics}
        text = json.dumps(words).replace("EDGE", edge)
        parsed = parse_read_options({**given, name: text})
        assert parsed == parse_read_options(
            {**given, name: f'{text[:-1]}, "*": "{other}"}}'}
        )
        if "12:3" not in text:
            with pytest.raises(OptionError, match="nothing would be read"):
                parse_read_options({**given, name: f'{text[:-1]}, "*": "{edge}"}}'})
    for text in ('{"t": "latest"}', '{"t-partition-1": "latest"}'):
        (topic,) = json.loads(text)
        for written in (topic, f"persistent://public/default/{topic}"):
            with pytest.raises(OptionError, match="nothing would be read"):
                read(topic=written, startingOffsets=text)


def test_start_at_a_subscription() -> None:
    """A stream starts where its subscription stands; the offsets are the default."""
    result = read(
        streaming=True, startingOffsets=" Subscription ", predefinedSubscription="mine"
    )
    assert result.start_at_subscription is True
    assert result.predefined_subscription == "mine"
    assert result.starting_offsets == OffsetsSpec(Edge.LATEST)
    unacked = read(
        streaming=True,
        startingOffsets="subscription",
        predefinedSubscription="mine",
        ackOnCommit="false",
    )
    assert (unacked.start_at_subscription, unacked.ack_on_commit) == (True, False)


def test_start_at_a_subscription_needs_its_name() -> None:
    """Nobody is asked where a subscription without a name stands."""
    assert problem("startingOffsets", "subscription", streaming=True) == (
        "startingOffsets=subscription needs predefinedSubscription: it names the"
        " subscription."
    )


def test_a_bad_name_is_not_missing_as_well() -> None:
    """A subscription's name that cannot be is one problem, not two."""
    for name in ("", "a/b"):
        given_so = {"startingOffsets": "subscription", "predefinedSubscription": name}
        (only,) = problems(BASE | given_so, streaming=True)
        assert only.startswith("predefinedSubscription ")


@pytest.mark.parametrize("extra", [{}, {"predefinedSubscription": "mine"}])
def test_a_batch_read_starts_at_no_subscription(extra: dict[str, str]) -> None:
    """A batch read says what that start is for, and what it would need there."""
    (only,) = problems(BASE | {"startingOffsets": "subscription"} | extra)
    assert only == (
        "startingOffsets cannot be subscription in a batch read: that is for streams,"
        " together with predefinedSubscription."
    )


def test_a_subscription_and_a_time_exclude_each_other() -> None:
    """A stream starts in one way."""
    given_so = {
        "startingOffsets": "subscription",
        "startingTime": "5",
        "predefinedSubscription": "mine",
    }
    (only,) = problems(BASE | given_so, streaming=True)
    assert only.startswith("startingOffsets and startingTime cannot be used together")


def test_bad_json_names_the_option() -> None:
    """A slip in JSON is reported under the option's name."""
    assert problem("startingOffsets", "{").startswith(
        "startingOffsets is not valid JSON"
    )


# Values


@pytest.mark.parametrize(
    ("name", "text", "part"),
    [
        ("failOnDataLoss", "yes", "must be true or false, not 'yes'"),
        ("startingTimeStrategy", "none", "must be latest or error, not 'none'"),
        ("rowsPerArrowBatch", "many", "must be a whole number, not 'many'"),
        ("rowsPerArrowBatch", "1.5", "must be a whole number"),
        ("rowsPerArrowBatch", "0", "must be between 1 and 1000000, not 0"),
        ("rowsPerArrowBatch", "9" * 5000, "must be a whole number"),
        ("rowsPerArrowBatch", "\u0661", "must be a whole number"),
        ("bytesPerArrowBatch", "4 parsecs", "number of bytes such as 4194304"),
        ("bytesPerArrowBatch", "-1", "number of bytes"),
        ("bytesPerArrowBatch", "2t", "must be between"),
        ("pollTimeoutMs", "0", "must be between 1 and 86400000, not 0"),
        ("pulsar.client.memoryLimitBytes", "1k", "must be between"),
        ("subscriptionPrefix", " ", "is empty: set it or leave it out"),
        ("startingTime", "noon", '"noon" is not a time'),
        ("filterPushdown", "maybe", "must be true or false"),
        ("filterPushdown", "false,5m", "must be false or true, such as true,10m"),
        ("filterPushdown", "true,", "must be a duration such as 500ms"),
        ("filterPushdown", "true,2d3h", "must be a duration"),
    ],
)
def test_bad_values(name: str, text: str, part: str) -> None:
    """A value that cannot be is refused under the option's canonical name."""
    message = problem(name.lower(), text)
    assert message.startswith(name)
    assert part in message


@pytest.mark.parametrize(
    ("name", "text", "part"),
    [
        ("partitionDiscoveryIntervalMs", "-1", "must be between 0 and 86400000"),
        ("minPartitions", "0", "must be between 1 and 100000, not 0"),
        ("minPartitions", "100001", "must be between 1 and 100000, not 100001"),
        ("maxPartitions", "0", "must be between 1 and 2147483647, not 0"),
        ("maxRecordsPerPartition", "0", "must be between 1 and 9223372036854775807"),
        ("maxRowsPerTrigger", "0", "must be between 1 and 9223372036854775807, not 0"),
        ("maxRowsPerTrigger", str(2**63), "must be between 1 and"),
        ("minRowsPerTrigger", "0", "must be between 1 and"),
        ("maxBytesPerTrigger", "0k", "must be between 1 and"),
        ("maxBytesPerTrigger", "much", "number of bytes"),
        ("ackOnCommit", "1", "must be true or false, not '1'"),
        ("deleteSubscriptionOnStop", "no", "must be true or false, not 'no'"),
        ("maxTriggerDelay", "soon", "must be a duration such as"),
        ("maxTriggerDelay", "15 parsecs", "must be a duration such as"),
        ("maxTriggerDelay", "1.5h", "must be a duration such as"),
        ("maxTriggerDelay", "-1s", "must be a duration such as"),
        ("maxTriggerDelay", "s", "must be a duration such as"),
        ("maxTriggerDelay", "\u0661s", "must be a duration such as"),
        ("maxTriggerDelay", "9" * 5000, "must be a duration such as"),
        ("maxTriggerDelay", "366d", "must be at most 365d, not '366d'"),
        ("predefinedSubscription", " ", "is empty: set it or leave it out"),
        ("predefinedSubscription", "a/b", "must not contain a slash, unlike 'a/b'"),
        ("predefinedSubscription", "pulsar.dedup", "names for themselves"),
        ("predefinedSubscription", " pulsar.repl.c", "names for themselves"),
        ("subscriptionPrefix", "a/b", "must not contain a slash, unlike 'a/b'"),
        ("subscriptionPrefix", "pulsar.dedup", "names for themselves"),
        ("subscriptionPrefix", "pulsar.repl", "names for themselves"),
    ],
)
def test_bad_values_on_streams(name: str, text: str, part: str) -> None:
    """So it is with the options of streams."""
    message = problem(name.lower(), text, streaming=True)
    assert message.startswith(name)
    assert part in message


@pytest.mark.parametrize(
    "name", ["pulsar.dedup2", "pulsar.rep", "a.pulsar.repl", "a=b"]
)
def test_names_that_only_resemble_reserved_ones(name: str) -> None:
    """What brokers take is taken."""
    result = read(streaming=True, predefinedSubscription=name)
    assert result.predefined_subscription == name


def test_subscription_prefix_of_a_batch_read_is_checked() -> None:
    """Readers of a batch read subscribe, too."""
    assert "must not contain a slash" in problem("subscriptionPrefix", "a/b")


def test_prefix_of_readers() -> None:
    """Readers have a prefix of their own, or else that of all subscriptions."""
    both = {"subscriptionPrefix": "jobs", "pulsar.reader.subscriptionRolePrefix": "r"}
    assert read().client.reader_prefix == "spark-pulsar"
    assert read(subscriptionPrefix="jobs").client.reader_prefix == "jobs"
    assert parse_read_options(BASE | both).client.reader_prefix == "r"


def test_a_predefined_subscription_is_never_deleted() -> None:
    """Asking for it is a mistake, not asking is none."""
    both = {"predefinedSubscription": "mine", "deleteSubscriptionOnStop": "true"}
    (only,) = problems(BASE | both, streaming=True)
    assert only == (
        "deleteSubscriptionOnStop cannot be true with predefinedSubscription: a"
        " predefined subscription is never deleted."
    )
    both["deleteSubscriptionOnStop"] = "false"
    result = parse_read_options(BASE | both, streaming=True)
    assert result.delete_subscription_on_stop is False


def test_most_rows_are_not_below_fewest() -> None:
    """A micro-batch can have the rows that it waits for."""
    some = {"minRowsPerTrigger": "6", "maxRowsPerTrigger": "5"}
    assert problems(BASE | some, streaming=True) == (
        "maxRowsPerTrigger must not be below minRowsPerTrigger.",
    )
    equal = read(streaming=True, minRowsPerTrigger="5", maxRowsPerTrigger="5")
    assert (equal.min_rows_per_trigger, equal.max_rows_per_trigger) == (5, 5)


@pytest.mark.parametrize(
    ("text", "delay_s"),
    [
        ("0", 0.0),
        ("1500", 1.5),
        ("250ms", 0.25),
        ("2 milliseconds", 0.002),
        ("7s", 7.0),
        ("1 second", 1.0),
        ("15m", 900.0),
        ("15min", 900.0),
        (" 15 Minutes ", 900.0),
        ("2H", 7200.0),
        ("1 hour", 3600.0),
        ("1d", 86_400.0),
        ("365 days", 31_536_000.0),
    ],
)
def test_durations(text: str, delay_s: float) -> None:
    """Durations are what Spark writes, or plain milliseconds."""
    assert read(streaming=True, maxTriggerDelay=text).max_trigger_delay_s == delay_s


@pytest.mark.parametrize(
    ("text", "pushdown"),
    [
        ("false", None),
        (" FALSE ", None),
        ("true", FilterPushdown(300.0)),
        ("True ,500", FilterPushdown(0.5)),
        ("true,0ms", FilterPushdown(0.0)),
    ],
)
def test_filter_pushdown(text: str, pushdown: FilterPushdown | None) -> None:
    """A switch, and how far publish times may be off. It is for batch reads."""
    assert read(filterPushdown=text).filter_pushdown == pushdown
    assert read(streaming=True, filterPushdown=text).filter_pushdown is None


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("4096", 4096),
        ("4k", 4096),
        ("4K", 4096),
        ("4kb", 4096),
        ("4 KiB", 4096),
        ("1m", 1 << 20),
        ("1g", 1 << 30),
        ("2048b", 2048),
    ],
)
def test_sizes(text: str, size: int) -> None:
    """Sizes are numbers of bytes, or carry a binary suffix."""
    assert read(bytesPerArrowBatch=text).bytes_per_arrow_batch == size


def test_backoff_must_not_shrink() -> None:
    """The first pause is at most the longest one."""
    message = problem("pulsar.client.initialBackoffIntervalNanos", "61000000000")
    assert "must not be above pulsar.client.maxBackoffIntervalNanos" in message


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("all", METADATA_COLUMNS_ALL),
        ("NONE", ()),
        ("__topic", ("__topic",)),
        (" __MESSAGEID , __key,__key,", ("__messageId", "__key")),
        (",".join(METADATA_COLUMNS_DEFAULT), METADATA_COLUMNS_DEFAULT),
    ],
)
def test_metadata_columns(text: str, columns: tuple[str, ...]) -> None:
    """Columns are chosen by word or by list, in any case, in the order given."""
    assert read(metadataColumns=text).metadata_columns == columns


def test_the_latest_schema() -> None:
    """To ask for it is more than to say nothing."""
    assert read(schemaVersion="Latest").schema_version == LATEST_SCHEMA
    assert read().schema_version is None
    for text in ("-1", "1.0", "newest", "v2"):
        assert "schemaVersion" in problem("schemaVersion", text)


@pytest.mark.parametrize("name", ["value", "__KEY", "__topic"])
def test_the_corrupt_record_is_a_column_of_its_own(name: str) -> None:
    """Not one that every topic has."""
    assert problem("columnNameOfCorruptRecord", name) == (
        f"columnNameOfCorruptRecord cannot be {name}: that is another column."
    )


@pytest.mark.parametrize("zone", ["Mars/Olympus", "../UTC", "+25:00"])
def test_time_zones(zone: str) -> None:
    """A zone that this machine does not know is refused; it always knows UTC."""
    assert read(timeZone="utc").time_zone == "UTC"
    assert "Europe/Berlin" in problem("timeZone", zone)


def test_different_schemas_have_no_version() -> None:
    """With values as bytes there is nothing to pin."""
    given = {"schemaVersion": "1", "allowDifferentTopicSchemas": "true"}
    (only,) = problems(BASE | given)
    assert "cannot be used together" in only


def test_unknown_metadata_columns_name_the_nearest() -> None:
    """A slip in a column's name is answered with the right one, and with all."""
    first, second = problems(BASE | {"metadataColumns": "__topics,__key,partition"})
    assert "'__topics'. Did you mean __topic?" in first
    assert "'partition'. Did you mean __partition?" in second
    assert "__deliverAtTime" in second


def test_metadata_columns_begin_with_the_six() -> None:
    """All columns are the default ones, and then the further ones."""
    assert METADATA_COLUMNS_ALL[:6] == METADATA_COLUMNS_DEFAULT
    assert len(set(METADATA_COLUMNS_ALL)) == 18


# The address of the service


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("pulsar://h", ("h:6650",)),
        (" pulsar://h:1/ ", ("h:1",)),
        ("PULSAR://h", ("h:6650",)),
        ("pulsar://h1:6651,h2, h3:6653", ("h1:6651", "h2:6650", "h3:6653")),
        ("pulsar://h1,pulsar://h2:1", ("h1:6650", "h2:1")),
        ("pulsar://h,h:6650", ("h:6650",)),
        ("pulsar://[::1]:6650,[fe80::1%eth0]", None),
        ("pulsar://[::1],127.0.0.1", ("[::1]:6650", "127.0.0.1:6650")),
        ("pulsar://my-broker_1.example.com", ("my-broker_1.example.com:6650",)),
    ],
)
def test_service_url(text: str, hosts: tuple[str, ...] | None) -> None:
    """Hosts are listed with their ports, 6650 by default."""
    if hosts is None:
        assert "hosts with optional ports" in problem("service.url", text)
    else:
        client = parse_read_options({"service.url": text, "topic": "t"}).client
        assert client.service_url == ServiceUrl("pulsar", hosts)


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("pulsar+ssl://h", ("h:6651",)),
        ("PULSAR+SSL://h1:1, pulsar+ssl://h2/", ("h1:1", "h2:6651")),
    ],
)
def test_service_url_with_tls(text: str, hosts: tuple[str, ...]) -> None:
    """The scheme asks for TLS, whose port is 6651 by default."""
    client = parse_read_options({"service.url": text, "topic": "t"}).client
    assert client.service_url == ServiceUrl("pulsar+ssl", hosts)
    assert client.service_url.uses_tls


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("localhost", "must begin with pulsar:// or pulsar+ssl://, such as pulsar://l"),
        ("broker:6651", "such as pulsar://broker:6651."),
        ("http://h:8080", "is the form of the admin URL"),
        ("HTTPS://h:8443", "is the form of the admin URL"),
        ("pulsar+tls://h:6651", "must begin with pulsar:// or pulsar+ssl://"),
        ("pulsar+ssl://h1,pulsar://h2", "each of its hosts with pulsar+ssl://"),
        ("pulsar://h1,pulsar+ssl://h2", "each of its hosts with pulsar://"),
        ("kafka://h", "must begin with pulsar://"),
        ("pulsar://", "hosts with optional ports"),
        ("pulsar://h1,", "hosts with optional ports"),
        ("pulsar://h:x", "hosts with optional ports"),
        ("pulsar://h:6650/path", "hosts with optional ports"),
        ("pulsar://h:0", "h cannot have the port 0"),
        ("pulsar://h:65536", "h cannot have the port 65536"),
        ("pulsar://h:65500000", "the port 65500000: a port is 1 to 65535"),
        ("", "service.url is empty"),
    ],
)
def test_bad_service_url(text: str, part: str) -> None:
    """An address that is none of a broker is refused with one reason."""
    message = problem("service.url", text)
    assert message.startswith("service.url")
    assert part in message


def test_service_url_is_required() -> None:
    """A missing address is named, with an example."""
    (only,) = problems({"topic": "t"})
    assert only == "service.url is required, such as pulsar://localhost:6650."


# Options of other versions, sides and clients

OF_READS = [spec for spec in OPTIONS if spec.scope & Scope.READ]
OF_WRITES = [spec for spec in OPTIONS if spec.scope in Scope.WRITE]
LATER = [spec for spec in OF_READS if spec.support is Support.REFUSED]
IGNORED = [spec for spec in OF_READS if spec.support is Support.IGNORED]


@pytest.mark.parametrize("spec", LATER, ids=lambda s: s.name)
def test_refused_options(spec: Any, caplog: pytest.LogCaptureFixture) -> None:
    """What would be wrong to drop is refused by name, and its value not shown."""
    for streaming in (False, True):
        message = problem(spec.name, SECRET, streaming=streaming)
        assert message.startswith(f"{spec.name} is not supported yet by this version.")
        assert SECRET not in message
    assert SECRET not in caplog.text


@pytest.mark.parametrize("spec", OF_WRITES, ids=lambda s: s.name)
def test_options_of_writes(spec: Any, caplog: pytest.LogCaptureFixture) -> None:
    """One set of options serves a read and a write, with a warning."""
    for text, streaming in product((SECRET, "", "auto"), (False, True)):
        given_so = BASE | {spec.name: text}
        assert parse_read_options(given_so, streaming=streaming) == read(
            streaming=streaming
        )
    (record,) = caplog.records
    assert record.getMessage() == (
        f"These options have no effect on this read, and are ignored: {spec.name}"
    )


@pytest.mark.parametrize(
    ("name", "text", "beside"),
    [
        ("startingTimeStrategy", "error", {"startingTime": "1"}),
        ("topicWaitTimeoutMs", "1", {"waitingForNonExistedTopic": "true"}),
        ("maxTriggerDelay", "1s", {"minRowsPerTrigger": "1"}),
        ("columnNameOfCorruptRecord", "bad", {"mode": "PERMISSIVE"}),
    ],
)
def test_options_without_effect(
    name: str, text: str, beside: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    """What changes nothing without another option is a warning."""
    parse_read_options(BASE | {name: text} | beside, streaming=True)
    assert not caplog.records
    parse_read_options(BASE | {name: text}, streaming=True)
    (record,) = caplog.records
    assert record.getMessage().endswith(f"on this read, and are ignored: {name}")


def test_filters_are_for_batch_reads(caplog: pytest.LogCaptureFixture) -> None:
    """A stream plans by offsets: a warning says that nothing is pruned."""
    read(streaming=True, filterPushdown="true")
    assert "no effect on this read, and are ignored: filterPushdown" in caplog.text


def test_no_limits() -> None:
    """0 is no limit where the Scala connector and Java's client have it so."""
    assert read(streaming=True, maxBytesPerTrigger="0").max_bytes_per_trigger is None
    client = read(pulsar__client__memoryLimitBytes=" 0 ").client
    assert client.memory_limit_bytes == 1 << 40
    chunks = read(pulsar__reader__maxPendingChunkedMessage="0")
    assert chunks.max_pending_chunked_message == 2**31 - 1


@pytest.mark.parametrize("name", STREAM_GIVEN)
@pytest.mark.parametrize("text", [SECRET, ""])
def test_batch_reads_ignore_options_of_streams(
    name: str, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    """One set of options serves a stream and its backfill, with a warning."""
    assert parse_read_options(BASE | {name: text}) == read()
    (record,) = caplog.records
    assert record.getMessage().endswith(f": {name}")


def test_options_of_streams_do_not_clash_on_batch_reads() -> None:
    """What would be a mistake on a stream is ignored as a whole."""
    given_so = {
        "predefinedSubscription": "mine",
        "deleteSubscriptionOnStop": "true",
        "minRowsPerTrigger": "6",
        "maxRowsPerTrigger": "5",
    }
    assert parse_read_options(BASE | given_so) == read()


@pytest.mark.parametrize("spec", IGNORED, ids=lambda s: s.name)
def test_ignored_options(spec: Any, caplog: pytest.LogCaptureFixture) -> None:
    """What is only tuning is accepted with a warning that does not show its value."""
    assert parse_read_options(BASE | {spec.name.lower(): SECRET}) == read()
    assert spec.name in caplog.text
    assert SECRET not in caplog.text


def test_no_warning_beside_an_error(caplog: pytest.LogCaptureFixture) -> None:
    """While something is wrong, only that is reported."""
    problems(BASE | {"pulsar.client.useTcpNoDelay": "true", "zzz": ""})
    assert not caplog.records


@pytest.mark.parametrize("key", ["admin.url", "adminUrl", "pulsarAdminAuthParams"])
def test_admin_options_are_never_needed(key: str) -> None:
    """Options of the admin client are accepted in every spelling."""
    assert parse_read_options(BASE | {key: "http://h:8080"}) == read()


# Secrets


@pytest.mark.parametrize(
    "key",
    [
        "pulsar.client.authParams",
        "pulsarClientAuthParams",
        "pulsar.client.authParamMap",
        "pulsar.client.authpluginclassname",
        "pulsar.client.tlsTrustStorePassword",
        "pulsar.client.authParms",
        "encryption.privateKeys",
    ],
)
def test_secrets_are_not_in_errors(key: str, caplog: pytest.LogCaptureFixture) -> None:
    """An error about an option that may hold a secret does not show its value."""
    with pytest.raises(OptionError) as caught:
        parse_read_options({key: f"token:{SECRET}", "rowsPerArrowBatch": "x"})
    error = caught.value
    assert SECRET not in f"{error} {error!r} {error.__context__!r} {caplog.text}"
    assert SECRET.encode() not in pickle.dumps(error)


@pytest.mark.parametrize(
    "url",
    [
        f"pulsar://user:{SECRET}@h:6650",
        f"pulsar://{SECRET}@h",
        f"pulsar://h1,user:{SECRET}@h2",
        f"http://user:{SECRET}@h",
        f"user:{SECRET}@h:6650",
        f"pulsar://h:6650/{SECRET}",
        f"pulsar://h:6650?token={SECRET}",
    ],
)
def test_secrets_in_the_service_url_are_not_shown(url: str) -> None:
    """An address with a user is refused without repeating the password."""
    message = problem("service.url", url)
    assert SECRET not in message
    if "@" in url:
        assert message == "service.url must not contain a user or a password."


def test_options_hold_no_secret() -> None:
    """Nothing of the admin client's secrets is left in the options."""
    result = parse_read_options(BASE | {"pulsar.admin.authParams": SECRET})
    assert SECRET not in repr(result)
    assert SECRET.encode() not in pickle.dumps(result)


# All together


def test_all_problems_are_reported_together() -> None:
    """Nobody has to mend a set of options one problem at a time."""
    found = problems(
        {
            "topic": "a/b",
            "topics": "t",
            "startingoffsets": "{",
            "startingtime": "noon",
            "polltimeoutms": "x",
            "zzz": "1",
            "pulsar.client.authparams": "x",
        }
    )
    begins = [text.split(" ")[0].rstrip(":") for text in found]
    assert sorted(begins) == sorted(
        [
            "There",
            "pulsar.client.authParams",
            "service.url",
            "topic",
            "startingOffsets",
            "startingTime",
            "pollTimeoutMs",
            "topic",
            "startingOffsets",
        ]
    )


keys = st.sampled_from([spec.name for spec in OPTIONS]) | st.text(max_size=12)


@given(st.dictionaries(keys, st.text(max_size=20)), st.booleans())
def test_any_options_are_values_or_an_option_error(
    given_options: dict[str, str], streaming: bool
) -> None:
    """No options make the parser fail in another way."""
    with contextlib.suppress(OptionError):
        parse_read_options(BASE | given_options, streaming=streaming)


# The documents


def test_markdown_table_has_every_option() -> None:
    """Each option is in the table, or in one of the two lists after it."""
    table, _, ignored, _, refused = options_table_markdown().strip().split("\n\n")
    rows = table.splitlines()[2:]
    assert len(rows) == sum(spec.available for spec in OPTIONS)
    assert all(row.count("|") - row.count("\\|") == 5 for row in rows)
    places = {
        Support.HONOURED: table,
        Support.IGNORED: ignored,
        Support.REFUSED: refused,
    }
    for spec in OPTIONS:
        prefix, _, name = spec.name.rpartition(".")
        listed = not spec.available and prefix.startswith("pulsar.")
        assert f"`{name if listed else spec.name}`" in places[spec.support]


def test_rows_of_the_table_are_complete() -> None:
    """An option that works is documented in one line, and its default is valid."""
    for spec in (spec for spec in OPTIONS if spec.available):
        assert spec.scope_text, spec.name
        assert spec.doc.endswith("."), spec.name
        assert "\n" not in spec.doc, spec.name
        if spec.default:
            spec.parse(spec.default, spec.name)


@pytest.mark.parametrize("streaming", [False, True])
def test_most_partitions_are_not_below_fewest(streaming: bool) -> None:
    """A plan can have as many input partitions as both ask for."""
    both = {"minPartitions": "6", "maxPartitions": "5"}
    (only,) = problems(BASE | both, streaming=streaming)
    assert only == "maxPartitions must not be below minPartitions."
    both["maxPartitions"] = "6"
    result = parse_read_options(BASE | both, streaming=streaming)
    assert result.max_partitions == result.min_partitions == 6


@pytest.mark.parametrize("by", [":", ": ", " ", ";", "("])
def test_a_value_within_a_name(by: str, caplog: pytest.LogCaptureFixture) -> None:
    """It is not shown, whether the name is refused or ignored: it may be a secret."""
    for name in ("pulsar.client.authParams", "kafka.sasl.jaas.config"):
        (text,) = problems(BASE | {f"{name}{by}{SECRET}": "="})
        assert f"{name}..." in text
        assert SECRET not in text
    read(**{f"pulsar.admin.authParams{by}{SECRET}": "="})
    assert "pulsar.admin.authParams..." in caplog.text
    assert SECRET not in caplog.text
