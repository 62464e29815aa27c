# SPDX-License-Identifier: Apache-2.0
"""What a user reads in the exception of a read, whatever went wrong.

Each text holds the condition in brackets, names the thing, and says what to change, in
few lines. ``tests/options`` has the texts of all other mistakes in options. Spark shows
what a process of ours raises, so most tests leave Spark out: ``TestThroughSpark`` holds
this for a driver, for a task and for a stream.
"""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql.types import StructType

from pulsar_spark.errors import PulsarSparkError
from tests.support import reading
from tests.support.scripted_broker import (
    LEDGER,
    ScriptedBroker,
    StoredFrame,
    batch,
    cut,
    numbered,
    refuse,
    silence,
    single,
)
from tests.support.session import SHORT_LIVED, environment, start_spark
from tests.support.spark_errors import expect

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from pulsar_spark.testing.admin import Admin
    from tests.support.link_proxy import LinkProxy

ROOT = Path(__file__).parents[2]
NAME = "persistent://public/default/t"
NOWHERE = "pulsar://127.0.0.1:1"
SECRET = "s3cr3t-of-the-user"

#: So that tests of what does not answer are short.
IMPATIENT = {
    "pulsar.client.connectionTimeoutMs": "500",
    "pulsar.client.lookupTimeoutMs": "700",
    "pulsar.client.operationTimeoutMs": "500",
}


#: The same where one request is not answered, but those before it are.
ALMOST_PATIENT = {
    "pulsar.client.lookupTimeoutMs": "3000",
    "pulsar.client.operationTimeoutMs": "3000",
}


@pytest.fixture
def scripted() -> Iterator[ScriptedBroker]:
    """A broker that does what a test tells it to, with a topic ``t`` of ten rows."""
    with ScriptedBroker() as broker:
        broker.add_topic(NAME, numbered(5, 2))
        yield broker


def error_of(
    url: str, schema: StructType | None = None, **options: str
) -> PulsarSparkError:
    """The exception that Spark gets of a read with these options."""
    given = {"topic": "t", **options}
    # "-" leaves an option out.
    given = {name: value for name, value in given.items() if value != "-"}
    with pytest.raises(PulsarSparkError) as caught:
        reading.read_columns(url, given, schema)
    return caught.value


def error_in_spark(spark: SparkSession, url: str, **options: str) -> Exception:
    """The exception that Spark raises then."""
    given = {"service.url": url, "topic": "t", **options}
    with pytest.raises(PySparkException) as caught:
        spark.read.format("pulsar").options(**given).load().collect()
    return caught.value


class TestThroughSpark:
    """The text and its few lines reach the user."""

    def test_of_the_driver(self, spark: SparkSession) -> None:
        """All conflicts at once: nobody has to mend them one run at a time."""
        error = error_in_spark(
            spark,
            NOWHERE,
            topics="a,b",
            startingOffsets="earliest",
            startingTime="0",
            pollTimeoutMs="soon",
            endingOffsets="earliest",
        )
        expect(
            error,
            "[PULSAR_OPTION]",
            "topic and topics cannot be used together",
            "startingOffsets and startingTime cannot be used together",
            "pollTimeoutMs must be a whole number, not 'soon'",
            "endingOffsets cannot be earliest",
        )

    def test_of_a_task(self, spark: SparkSession, scripted: ScriptedBroker) -> None:
        """A damaged message is named by its id and its topic, with what is wrong."""
        good = batch([b"12345678"])
        scripted.append(NAME, StoredFrame(good.metadata, good.payload, 1, None, True))
        error = error_in_spark(spark, scripted.url)
        expect(error, "[PULSAR_CORRUPT_MESSAGE]", f"Message {LEDGER}:5 of {NAME}")
        expect(error, "checksum")

    def test_of_a_stream(
        self, spark: SparkSession, service_url: str, tmp_path: Path
    ) -> None:
        """Its error has Spark's plan at its end."""
        options = {"service.url": service_url, "topic": "oders"}
        rows = spark.readStream.format("pulsar").schema("value BINARY")
        query = rows.options(**options).load().writeStream.format("noop")
        query = query.option("checkpointLocation", str(tmp_path))
        with pytest.raises(PySparkException) as caught:
            query.start().processAllAvailable()
        expect(caught.value, "[PULSAR_TOPIC_NOT_FOUND]", "oders does not exist")


class TestOptions:
    """No broker is asked: the URL leads nowhere."""

    def test_an_unknown_option(self) -> None:
        """The nearest name is suggested."""
        error = error_of(NOWHERE, startingOffset="earliest")
        expect(error, "[PULSAR_OPTION]", "startingOffset", "mean startingOffsets?")


class TestSchema:
    def test_a_column_that_a_topic_has_not(self, scripted: ScriptedBroker) -> None:
        """The column is named, with those there are."""
        wanted = StructType().add("value", "binary").add("colour", "string")
        error = error_of(scripted.url, wanted)
        expect(error, "[PULSAR_SCHEMA]", "no column `colour`", "__messageId")

    def test_a_column_twice(self, spark: SparkSession) -> None:
        """Spark itself or we: the column is named."""
        twice = spark.read.format("pulsar").schema("value BINARY, value BINARY")
        with pytest.raises(PySparkException) as caught:
            twice.option("service.url", NOWHERE).option("topic", "t").load().collect()
        expect(caught.value, "`value`")


class TestTopics:
    def test_a_missing_topic_is_not_created(
        self, service_url: str, admin: Admin, namespace: str
    ) -> None:
        """The name, and what one can do; the namespace stays empty."""
        name = f"persistent://{namespace}/nowhere"
        error = error_of(service_url, topic=name)
        expect(
            error,
            "[PULSAR_TOPIC_NOT_FOUND]",
            f"{name} does not exist",
            "waitingForNonExistedTopic",
        )
        assert admin.topics(namespace) == []
        assert admin.partitioned_topics(namespace) == []

    def test_a_missing_partition(
        self, service_url: str, admin: Admin, namespace: str
    ) -> None:
        """A partition beyond the last one is named."""
        name = f"persistent://{namespace}/parts"
        admin.create_partitioned(name, 2)
        error = error_of(service_url, topic=f"{name}-partition-7")
        expect(error, "[PULSAR_TOPIC_NOT_FOUND]", f"{name}-partition-7 does not exist")

    @pytest.mark.parametrize("place", ["nobody/default", "public/nowhere"])
    def test_a_place_that_is_missing(self, service_url: str, place: str) -> None:
        """A tenant, or a namespace: there is no topic, either."""
        error = error_of(service_url, topic=f"{place}/orders")
        expect(error, "[PULSAR_TOPIC_NOT_FOUND]", f"{place}/orders")

    def test_a_pattern_without_a_match(self, service_url: str, namespace: str) -> None:
        """Pattern and namespace are shown."""
        error = error_of(service_url, topic="-", topicsPattern=f"{namespace}/zzz.*")
        expect(error, "[PULSAR_TOPIC_NOT_FOUND]", "zzz.*", namespace, "topicsPattern")


class TestConnections:
    def test_an_unreachable_host(self) -> None:
        """Address, reason and option."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{free.getsockname()[1]}"
            error = error_of(f"pulsar://{address}", **IMPATIENT)
        expect(error, "[PULSAR_CONNECTION]", address, "refused", "`service.url`")

    def test_a_host_without_a_name(self) -> None:
        """Likewise."""
        error = error_of("pulsar://nohost.invalid:6650", **IMPATIENT)
        expect(error, "[PULSAR_CONNECTION]", "nohost.invalid:6650")

    def test_tls_at_a_plain_port(self, service_url: str) -> None:
        """The option is named."""
        url = service_url.replace("r:", "r+ssl:", 1)
        expect(error_of(url, **IMPATIENT), "[PULSAR_TLS]", "`service.url`")

    def test_the_admin_port(self, admin: Admin) -> None:
        """What answered is no Pulsar broker, and which port usually is one."""
        address = admin.admin_url.removeprefix("http://")
        error = error_of(f"pulsar://{address}", **IMPATIENT)
        expect(error, "[PULSAR_PROTOCOL]", address, "HTTP server", "6650")

    def test_a_broker_that_does_not_answer_at_all(
        self, link: LinkProxy, service_url: str
    ) -> None:
        """Connections open, but nothing comes back."""
        link.stall()
        error = error_of(link.url, **IMPATIENT)
        address = link.url.removeprefix("pulsar://")
        expect(error, "[PULSAR_CONNECTION]", address, "did not answer CONNECT within")

    @pytest.mark.parametrize(
        "request_name", ["LOOKUP", pytest.param("SUBSCRIBE", marks=pytest.mark.matrix)]
    )
    def test_a_broker_that_stops_answering(
        self, scripted: ScriptedBroker, request_name: str
    ) -> None:
        """The request that was not answered is named."""
        scripted.always(request_name, silence)
        error = error_of(scripted.url, **ALMOST_PATIENT)
        expect(error, "[PULSAR_CONNECTION]", scripted.address, request_name)
        expect(error, "`pulsar.client.lookupTimeoutMs`")

    def test_a_refusal(self, scripted: ScriptedBroker) -> None:
        """Code, topic and the broker's own words."""
        scripted.always("SUBSCRIBE", refuse("NotAllowedError", "no such luck"))
        error = error_of(scripted.url)
        expect(error, "[PULSAR_BROKER]", NAME, "NotAllowedError", "no such luck")

    def test_no_right_to_connect(self, scripted: ScriptedBroker) -> None:
        """Authentication has a condition of its own."""
        scripted.always("CONNECT", refuse("AuthenticationError", "who are you"))
        error = error_of(scripted.url)
        expect(
            error,
            "[PULSAR_AUTH]",
            scripted.address,
            "who are you",
            "authPluginClassName",
        )


class TestReading:
    """Errors of what tasks do."""

    def test_the_broker_goes_away_for_good(self, scripted: ScriptedBroker) -> None:
        """In mid-read: what was tried, for how long, and the last reason."""
        scripted.always("FLOW", cut)
        error = error_of(scripted.url, pollTimeoutMs="1000")
        expect(error, "[PULSAR_READ_TIMEOUT]", NAME, "`pollTimeoutMs`", "last reason")

    def test_rows_that_are_gone(self, scripted: ScriptedBroker) -> None:
        """Both positions, and the option to go on."""
        entry = single(b"")
        scripted.add_topic(NAME, [StoredFrame(entry.metadata, b"", 1, (9, 0))])
        error = error_of(scripted.url, startingOffsets=f'{{"t": "{LEDGER}:3"}}')
        expect(
            error, "[PULSAR_DATA_LOSS]", NAME, f"{LEDGER}:3", "9:0", "failOnDataLoss"
        )

    def test_offsets_of_another_topic(self, scripted: ScriptedBroker) -> None:
        """A name in the JSON that is not read is a mistake."""
        error = error_of(scripted.url, startingOffsets='{"other": "earliest"}')
        expect(error, "[PULSAR_OPTION]", "startingOffsets", "default/other", NAME)


#: Options whose values are nobody's business. The first group is refused by this
#: version, the second one has no effect.
REFUSED_SECRETS = {
    "pulsar.client.authParams": f"token:{SECRET}",
    "pulsar.client.tlsKeyStorePassword": SECRET,
    "pulsar.client.socks5ProxyPassword": SECRET,
}
IGNORED_SECRETS = {"pulsar.admin.authParams": f"token:{SECRET}"}


class TestSecrets:
    def test_they_are_in_no_error(self) -> None:
        """The options are named, their values are not."""
        error = error_of(NOWHERE, **REFUSED_SECRETS)
        expect(error, "[PULSAR_OPTION]", *REFUSED_SECRETS)
        assert SECRET not in str(error)

    def test_they_are_in_no_log(self, scripted: ScriptedBroker, tmp_path: Path) -> None:
        """Neither the driver's nor the tasks', at the level of INFO, nor in a plan."""
        (tmp_path / "log4j2.properties").write_text(LOG4J)
        done = subprocess.run(
            [sys.executable, __file__, scripted.url],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment(),
            cwd=tmp_path,
            timeout=600,
            check=False,
        )
        output = done.stdout.decode(errors="replace")
        for part in ("10 rows", "[PULSAR_OPTION]", "INFO org.apache.spark"):
            assert part in output
        assert SECRET not in output


#: What Spark itself says. In a Python program it holds back what the root logger alone
#: lets through, so its own logger is named.
LOG4J = """\
rootLogger.level = info
rootLogger.appenderRef.console.ref = console
logger.spark.name = org.apache.spark
logger.spark.level = info
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %p %c: %m%n%ex
"""


def main(url: str) -> None:
    """One read that goes well and one that fails, in a Spark that logs a lot."""
    import logging

    logging.basicConfig()
    logging.getLogger("pulsar_spark").setLevel(logging.DEBUG)
    java = "spark.driver.extraJavaOptions"
    log4j = f"-Dlog4j2.configurationFile={Path('log4j2.properties').absolute()}"
    settings = {java: f"{SHORT_LIVED[java]} {log4j}"}
    spark = start_spark(Path.cwd(), settings, log_level="")

    def read(**secrets: Any) -> None:
        options = {"service.url": url, "topic": "t", **secrets}
        frame = spark.read.format("pulsar").options(**options).load()
        frame.explain(mode="extended")
        sys.stdout.write(f"{len(frame.collect())} rows\n")

    read(**IGNORED_SECRETS)
    try:
        read(**REFUSED_SECRETS)
    except PySparkException as error:
        sys.stdout.write(f"{error}\n")
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
