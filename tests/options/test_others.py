# SPDX-License-Identifier: Apache-2.0
"""Every option of the sources that jobs come from: what the tables say is so."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from pulsar_spark.errors import OptionError
from pulsar_spark.options import (
    OPTIONS,
    Scope,
    Support,
    parse_read_options,
    parse_write_options,
)
from pulsar_spark.options.others import DATABRICKS, KAFKA, SCALA, Fate, OtherOption
from spark_topics.options import given as module

#: Options that need others beside them, or that stand in place of another one.
BESIDE: dict[str, dict[str, str | None]] = {
    "topics": {"topic": None},
    "topicspattern": {"topic": None},
    "endingoffsets": {},
    "maxtriggerdelay": {"minRowsPerTrigger": "1"},
    "startingoffsetsbytimestampstrategy": {"startingTime": "1"},
    "pulsarclientauthparams": {"pulsar.client.authPluginClassName": "token"},
}

USES = {
    "batch read": Scope.BATCH,
    "stream": Scope.STREAM,
    "batch write": Scope.BATCH_WRITE,
    "stream of writes": Scope.STREAM_WRITE,
}

# As `javap -p` lists the fields of the classes in the Scala connector's jar, 3.4.1.
JAVA = {
    "pulsar.client.": """
        serviceUrl serviceUrlProvider authentication authPluginClassName authParams
        authParamMap operationTimeoutMs lookupTimeoutMs statsIntervalSeconds
        numIoThreads numListenerThreads connectionsPerBroker connectionMaxIdleSeconds
        useTcpNoDelay useTls tlsKeyFilePath tlsCertificateFilePath tlsTrustCertsFilePath
        tlsAllowInsecureConnection tlsHostnameVerificationEnable sslFactoryPlugin
        sslFactoryPluginParams concurrentLookupRequest maxLookupRequest
        maxLookupRedirects maxNumberOfRejectedRequestPerConnection
        keepAliveIntervalSeconds connectionTimeoutMs requestTimeoutMs readTimeoutMs
        autoCertRefreshSeconds initialBackoffIntervalNanos maxBackoffIntervalNanos
        enableBusyWait listenerName useKeyStoreTls sslProvider tlsKeyStoreType
        tlsKeyStorePath tlsKeyStorePassword tlsTrustStoreType tlsTrustStorePath
        tlsTrustStorePassword tlsCiphers tlsProtocols memoryLimitBytes proxyServiceUrl
        proxyProtocol enableTransaction clock dnsLookupBindAddress dnsLookupBindPort
        dnsServerAddresses socks5ProxyAddress socks5ProxyUsername socks5ProxyPassword
        description lookupProperties openTelemetry""",
    "pulsar.producer.": """
        topicName producerName sendTimeoutMs blockIfQueueFull maxPendingMessages
        maxPendingMessagesAcrossPartitions messageRoutingMode hashingScheme
        cryptoFailureAction customMessageRouter batchingMaxPublishDelayMicros
        batchingPartitionSwitchFrequencyByPublishDelay batchingMaxMessages
        batchingMaxBytes batchingEnabled batcherBuilder chunkingEnabled
        chunkMaxMessageSize cryptoKeyReader messageCrypto encryptionKeys compressionType
        initialSequenceId autoUpdatePartitions autoUpdatePartitionsIntervalSeconds
        multiSchema accessMode lazyStartPartitionedProducers properties
        isNonPartitionedTopicExpected isReplProducer initialSubscriptionName""",
    "pulsar.reader.": """
        topicNames startMessageId startMessageFromRollbackDurationInSec
        receiverQueueSize readerListener readerName subscriptionRolePrefix
        subscriptionName cryptoKeyReader cryptoFailureAction messageCrypto readCompacted
        resetIncludeHead keyHashRanges poolMessages autoUpdatePartitions
        autoUpdatePartitionsIntervalSeconds readerInterceptorList
        maxPendingChunkedMessage autoAckOldestChunkedMessageOnQueueFull
        expireTimeOfIncompleteChunkedMessageMillis subscriptionMode
        subscriptionInitialPosition""",
}

KNOWN = {
    name.lower().replace(".", ""): spec
    for spec in OPTIONS
    for name in (spec.name, *spec.aliases)
}


@pytest.fixture(autouse=True)
def _nothing_warned_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_warned", set())


def plain(name: str) -> str:
    """A name as names are compared."""
    return name.lower().replace(".", "")


def options_with(option: OtherOption) -> dict[str, str]:
    """A job's options, this one among them."""
    is_tls = "tls" in option.name.lower() and "useTls" not in option.name
    url = f"pulsar{'+ssl' * is_tls}://localhost:6650"
    options: dict[str, str | None] = {"service.url": url, "topic": "t"}
    if "Store" in option.name:
        options |= {"pulsar.client.useKeyStoreTls": "true"}
        options |= {"pulsar.client.tlsTrustStorePath": "/t.p12"}
    options |= BESIDE.get(plain(option.name), {})
    options = {
        key: text for key, text in options.items() if plain(key) != plain(option.name)
    }
    options[option.name] = option.example
    return {key: text for key, text in options.items() if text is not None}


def parse(options: dict[str, str], use: Scope) -> Any:
    """What a read or a write makes of the options."""
    if use in Scope.READ:
        return parse_read_options(options, streaming=use is Scope.STREAM)
    return parse_write_options(options, streaming=use is Scope.STREAM_WRITE)


def uses_of(option: OtherOption) -> list[Scope]:
    """The kinds of reads and writes in which the option has a meaning."""
    if any(option is one for one in DATABRICKS):
        return [Scope.STREAM]  # there is nothing else
    spec = KNOWN.get(plain(option.name))
    is_of_writes = any(option is one for one in KAFKA) and option.name == "topic"
    return [
        use for use in USES.values() if spec is None or use & spec.scope or is_of_writes
    ]


def rows(table: tuple[OtherOption, ...], *fates: Fate) -> list[Any]:
    """The options of a table that have such a fate, as parameters."""
    return [pytest.param(o, id=o.name) for o in table if o.fate in fates]


ALL = (*SCALA, *KAFKA, *DATABRICKS)


@pytest.mark.parametrize("option", rows(ALL, Fate.HONOURED))
def test_honoured(option: OtherOption, caplog: pytest.LogCaptureFixture) -> None:
    """It is read by the parser of ours, without a word, wherever it has a meaning."""
    caplog.set_level(logging.INFO)
    spec = KNOWN[plain(option.name)]
    assert spec.support is Support.HONOURED
    for use in uses_of(option):
        parse(options_with(option), use)
    assert not caplog.records


@pytest.mark.parametrize("option", rows(ALL, Fate.WARNED))
def test_warned(option: OtherOption, caplog: pytest.LogCaptureFixture) -> None:
    """It is accepted, and one warning names it."""
    for use in uses_of(option):
        module._warned.clear()
        caplog.clear()
        parse(options_with(option), use)
        (record,) = caplog.records
        assert record.levelno == logging.WARNING
        named = plain(option.name) in plain(record.getMessage())
        spec = KNOWN.get(plain(option.name))
        assert named or (spec and spec.name in record.getMessage())


@pytest.mark.parametrize("option", rows(ALL, Fate.REFUSED))
def test_refused(option: OtherOption) -> None:
    """It is one error, which says what to do, in the words of the table."""
    for use in uses_of(option):
        with pytest.raises(OptionError) as caught:
            parse(options_with(option), use)
        (problem,) = caught.value.problems
        assert problem.startswith(option.name)
        if plain(option.name) not in KNOWN:
            assert option.note.replace("`", "") in problem
        # What ours is called is in the note, and in the error.
        for name in option.note.split("`")[1::2]:
            assert name.partition("=")[0].partition(",")[0] in problem
        # A name of another case is known, too: Spark hands over lower-case ones.
        with pytest.raises(OptionError) as caught:
            parse({**options_with(option), option.name.lower(): "1"}, use)
        assert problem in caught.value.problems


@pytest.mark.parametrize("table", [SCALA, KAFKA, DATABRICKS])
def test_tables_name_what_there_is(table: tuple[OtherOption, ...]) -> None:
    """Each option once; each name of ours that a note has is an option or a column."""
    names = [option.name for option in table]
    assert len(set(names)) == len(names)
    for option in table:
        for name in option.note.split("`")[1::2]:
            key = name.partition("=")[0]
            if "pulsar." in key and not key.endswith("."):
                assert KNOWN[plain(key)].support is Support.HONOURED, name


@pytest.mark.parametrize("prefix", JAVA)
def test_every_setting_of_javas_client(prefix: str) -> None:
    """None is unknown: each is honoured, ignored with a warning, or refused."""
    for name in JAVA[prefix].split():
        spec = KNOWN[plain(prefix + name)]
        if spec.support is Support.HONOURED or spec.name in (
            option.name for option in SCALA
        ):
            continue
        use = Scope.BATCH if spec.scope & Scope.READ else Scope.BATCH_WRITE
        option = OtherOption(prefix + name, Fate.WARNED)
        if spec.support is Support.IGNORED:
            parse(options_with(option), use)
        else:
            with pytest.raises(OptionError, match=spec.name):
                parse(options_with(option), use)


@pytest.mark.parametrize("name", ["kafka.fetch.max.something", "KAFKA.x"])
def test_any_setting_of_kafkas_clients(name: str) -> None:
    """Those that are not in the table are told apart from slips of the pen, too."""
    with pytest.raises(OptionError, match="is a setting of Kafka's clients"):
        parse({"service.url": "pulsar://h", "topic": "t", name: "1"}, Scope.BATCH)


@pytest.mark.parametrize(
    ("name", "cure"),
    [
        ("token", "use pulsar.client.authPluginClassName=token with"),
        ("JWT", "use pulsar.client.authPluginClassName=token with"),
        ("authentication", "use pulsar.client.authPluginClassName with"),
        ("brokerUrl", "use service.url"),
        ("url", "use service.url"),
        ("compression", "use pulsar.producer.compressionType"),
    ],
)
def test_names_that_people_try(name: str, cure: str) -> None:
    """They are answered with ours; what stands in them is not shown."""
    some = {"service.url": "pulsar://h", "topic": "t", name: "s3cret"}
    with pytest.raises(OptionError, match=f"no option '{name}': {cure}") as caught:
        parse_write_options(some, streaming=False)
    assert "s3cret" not in str(caught.value)


def test_numbers_of_kafka() -> None:
    """They cannot be message ids: starting elsewhere in silence would be worse."""
    for option in "startingOffsets", "endingOffsets":
        with pytest.raises(OptionError, match=option):
            parse(
                {
                    "service.url": "pulsar://h",
                    "topic": "t",
                    option: '{"t":{"0":23}}',
                },
                Scope.BATCH,
            )


@pytest.mark.parametrize("streaming", [False, True])
def test_times_of_kafka(streaming: bool, caplog: pytest.LogCaptureFixture) -> None:
    """Who says what to do where nothing is later needs no warning."""
    options = {
        "service.url": "pulsar://h",
        "topic": "t",
        "startingTimestamp": "5",
        "startingOffsetsByTimestampStrategy": "error",
    }
    read = parse_read_options(options, streaming=streaming)
    assert read.starting_time_strategy == "error"
    assert not caplog.records
