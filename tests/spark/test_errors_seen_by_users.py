# SPDX-License-Identifier: Apache-2.0
"""What a user reads in the exception that Spark raises, whatever went wrong.

Each text holds the condition in brackets, names the thing, and says what to change.
"""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException

from tests.support.scripted_broker import (
    LEDGER,
    ScriptedBroker,
    StoredFrame,
    batch,
    cut,
    garbage,
    numbered,
    refuse,
    silence,
    single,
)
from tests.support.session import SHORT_LIVED, environment, start_spark

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from pulsar_spark.testing.admin import Admin
    from tests.support.link_proxy import LinkProxy

ROOT = Path(__file__).parents[2]
NAME = "persistent://public/default/t"
SECRET = "s3cr3t-of-the-user"

#: So that tests of what does not answer are short.
IMPATIENT = {
    "pulsar.client.connectionTimeoutMs": "500",
    "pulsar.client.lookupTimeoutMs": "700",
    "pulsar.client.operationTimeoutMs": "500",
}


#: The same where one request is not answered, but those before it are.
ALMOST_PATIENT = {
    "pulsar.client.lookupTimeoutMs": "5000",
    "pulsar.client.operationTimeoutMs": "5000",
}


@pytest.fixture
def scripted() -> Iterator[ScriptedBroker]:
    """A broker that does what a test tells it to, with a topic ``t`` of ten rows."""
    with ScriptedBroker() as broker:
        broker.add_topic(NAME, numbered(5, 2))
        yield broker


def error_of(
    spark: SparkSession, url: str, *, schema: str | None = None, **options: str
) -> str:
    """The text of the exception that a read with these options ends with."""
    given = {"service.url": url, "topic": "t", **options}
    # "-" leaves an option out.
    given = {name: value for name, value in given.items() if value != "-"}
    reader = spark.read.format("pulsar").options(**given)
    if schema is not None:
        reader = reader.schema(schema)
    with pytest.raises(PySparkException) as caught:
        reader.load().collect()
    return str(caught.value)


def expect(text: str, *parts: str) -> None:
    """Each of the parts is in the text."""
    missing = [part for part in parts if part not in text]
    assert not missing, f"{missing} not in:\n{text}"


class TestOptions:
    """No broker is asked: the URL leads nowhere."""

    URL = "pulsar://127.0.0.1:1"

    def test_an_unknown_option(self, spark: SparkSession) -> None:
        """The nearest name is suggested."""
        text = error_of(spark, self.URL, startingOffset="earliest")
        expect(text, "[PULSAR_OPTION]", "startingoffset", "mean startingOffsets?")

    def test_all_conflicts_at_once(self, spark: SparkSession) -> None:
        """Nobody has to mend them one run at a time."""
        text = error_of(
            spark,
            self.URL,
            topics="a,b",
            startingOffsets="earliest",
            startingTime="0",
            pollTimeoutMs="soon",
            endingOffsets="earliest",
        )
        expect(
            text,
            "[PULSAR_OPTION]",
            "topic and topics cannot be used together",
            "startingOffsets and startingTime cannot be used together",
            "pollTimeoutMs must be a whole number, not 'soon'",
            "endingOffsets cannot be earliest",
        )

    def test_required_options(self, spark: SparkSession) -> None:
        """Both are named."""
        text = error_of(spark, "-", topic="-")
        expect(text, "[PULSAR_OPTION]", "service.url is required", "topicsPattern")

    def test_bad_json(self, spark: SparkSession) -> None:
        """The option is named, and what its JSON looks like."""
        text = error_of(spark, self.URL, startingOffsets='{"t": ')
        expect(text, "[PULSAR_OPTION]", "startingOffsets", "JSON")

    def test_a_bad_regular_expression(self, spark: SparkSession) -> None:
        """The pattern is shown."""
        text = error_of(spark, self.URL, topic="-", topicsPattern="public/default/t([")
        expect(text, "[PULSAR_OPTION]", "topicsPattern", "t([")

    def test_a_topic_that_is_not_persistent(self, spark: SparkSession) -> None:
        """Nothing is stored there, so nothing can be read."""
        name = "non-persistent://public/default/t"
        text = error_of(spark, self.URL, topic=name)
        expect(text, "[PULSAR_OPTION]", name, "persistent")

    def test_tls_without_its_scheme(self, spark: SparkSession) -> None:
        """What asks for TLS is never dropped."""
        trust = {"pulsar.client.tlsTrustCertsFilePath": "/etc/ca.pem"}
        text = error_of(spark, self.URL, **trust)
        expect(text, "[PULSAR_OPTION]", *trust, "pulsar+ssl://", "6651")

    def test_the_admin_url(self, spark: SparkSession) -> None:
        """A frequent mistake has its own sentence."""
        text = error_of(spark, "http://127.0.0.1:8080")
        expect(text, "[PULSAR_OPTION]", "http://", "admin URL", "pulsar://", "6650")

    def test_an_unknown_metadata_column(self, spark: SparkSession) -> None:
        """The nearest name is suggested."""
        text = error_of(spark, self.URL, metadataColumns="__keys")
        expect(text, "[PULSAR_OPTION]", "__keys", "__key")


class TestSchema:
    URL = "pulsar://127.0.0.1:1"

    @pytest.mark.parametrize(
        ("schema", "parts"),
        [
            ("value STRING", ("`value` is BINARY, not STRING", "cast it")),
            ("value BINARY, colour STRING", ("no column `colour`", "__messageId")),
            ("value BINARY NOT NULL", ("`value` may be NULL",)),
        ],
    )
    def test_columns_that_a_topic_has_not(
        self,
        spark: SparkSession,
        scripted: ScriptedBroker,
        schema: str,
        parts: tuple[str, ...],
    ) -> None:
        """The column is named, with its type or those there are."""
        text = error_of(spark, scripted.url, schema=schema)
        expect(text, "[PULSAR_SCHEMA]", *parts)

    def test_a_column_twice(self, spark: SparkSession) -> None:
        """Spark itself or we: the column is named."""
        text = error_of(spark, self.URL, schema="value BINARY, value BINARY")
        expect(text, "`value`")


class TestTopics:
    def test_a_missing_topic_is_not_created(
        self, spark: SparkSession, service_url: str, admin: Admin, namespace: str
    ) -> None:
        """The name, and what one can do; the namespace stays empty."""
        name = f"persistent://{namespace}/nowhere"
        text = error_of(spark, service_url, topic=name)
        expect(
            text,
            "[PULSAR_TOPIC_NOT_FOUND]",
            f"{name} does not exist",
            "waitingForNonExistedTopic",
        )
        assert admin.topics(namespace) == []
        assert admin.partitioned_topics(namespace) == []

    def test_a_missing_partition(
        self, spark: SparkSession, service_url: str, admin: Admin, namespace: str
    ) -> None:
        """A partition beyond the last one is named."""
        name = f"persistent://{namespace}/parts"
        admin.create_partitioned(name, 2)
        text = error_of(spark, service_url, topic=f"{name}-partition-7")
        expect(text, "[PULSAR_TOPIC_NOT_FOUND]", f"{name}-partition-7 does not exist")

    def test_a_pattern_without_a_match(
        self, spark: SparkSession, service_url: str, namespace: str
    ) -> None:
        """Pattern and namespace are shown."""
        text = error_of(
            spark, service_url, topic="-", topicsPattern=f"{namespace}/zzz.*"
        )
        expect(text, "[PULSAR_TOPIC_NOT_FOUND]", "zzz.*", namespace, "topicsPattern")


class TestConnections:
    def test_an_unreachable_host(self, spark: SparkSession) -> None:
        """Address, reason and option."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{free.getsockname()[1]}"
            text = error_of(spark, f"pulsar://{address}", **IMPATIENT)
        expect(text, "[PULSAR_CONNECTION]", address, "refused", "`service.url`")

    def test_several_unreachable_hosts(self, spark: SparkSession) -> None:
        """Each with its reason."""
        url = "pulsar://127.0.0.1:1,127.0.0.1:2"
        text = error_of(spark, url, **IMPATIENT)
        expect(text, "[PULSAR_CONNECTION]", "No host of `service.url` answers")
        expect(text, "127.0.0.1:1 ", "127.0.0.1:2 ")

    def test_the_admin_port(self, spark: SparkSession, admin: Admin) -> None:
        """What answered is no Pulsar broker, and which port usually is one."""
        address = admin.admin_url.removeprefix("http://")
        text = error_of(spark, f"pulsar://{address}", **IMPATIENT)
        expect(text, "[PULSAR_", address, "6650")

    def test_a_port_where_http_answers(
        self, spark: SparkSession, scripted: ScriptedBroker
    ) -> None:
        """It is told by its first bytes."""
        scripted.always("CONNECT", garbage(b"HTTP/1.1 400 Illegal character\r\n\r\n"))
        text = error_of(spark, scripted.url)
        expect(text, "[PULSAR_PROTOCOL]", scripted.address, "HTTP server", "6650")

    def test_a_broker_that_does_not_answer_at_all(
        self, spark: SparkSession, link: LinkProxy, service_url: str
    ) -> None:
        """Connections open, but nothing comes back."""
        link.stall()
        text = error_of(spark, link.url, **IMPATIENT)
        address = link.url.removeprefix("pulsar://")
        expect(text, "[PULSAR_CONNECTION]", address, "did not answer CONNECT within")

    @pytest.mark.parametrize(
        "request_name", ["LOOKUP", pytest.param("SUBSCRIBE", marks=pytest.mark.matrix)]
    )
    def test_a_broker_that_stops_answering(
        self, spark: SparkSession, scripted: ScriptedBroker, request_name: str
    ) -> None:
        """The request that was not answered is named."""
        scripted.always(request_name, silence)
        text = error_of(spark, scripted.url, **ALMOST_PATIENT)
        expect(text, "[PULSAR_CONNECTION]", scripted.address, request_name)
        expect(text, "`pulsar.client.lookupTimeoutMs`")

    def test_a_refusal(self, spark: SparkSession, scripted: ScriptedBroker) -> None:
        """Code, topic and the broker's own words."""
        scripted.always("SUBSCRIBE", refuse("NotAllowedError", "no such luck"))
        text = error_of(spark, scripted.url)
        expect(text, "[PULSAR_BROKER]", NAME, "NotAllowedError", "no such luck")

    def test_no_right_to_connect(
        self, spark: SparkSession, scripted: ScriptedBroker
    ) -> None:
        """Authentication has a condition of its own."""
        scripted.always("CONNECT", refuse("AuthenticationError", "who are you"))
        text = error_of(spark, scripted.url)
        expect(
            text,
            "[PULSAR_AUTH]",
            scripted.address,
            "who are you",
            "authPluginClassName",
        )


class TestReading:
    """Errors that come from tasks."""

    def test_a_damaged_message_is_named(
        self, spark: SparkSession, scripted: ScriptedBroker
    ) -> None:
        """By its id and its topic, with what is wrong with it."""
        good = batch([b"12345678"])
        scripted.append(NAME, StoredFrame(good.metadata, good.payload, 1, None, True))
        text = error_of(spark, scripted.url)
        expect(text, "[PULSAR_CORRUPT_MESSAGE]", f"Message {LEDGER}:5 of {NAME}")
        expect(text, "checksum")

    def test_nothing_comes(self, spark: SparkSession, scripted: ScriptedBroker) -> None:
        """The option that ended it is named."""
        scripted.always("FLOW", silence)
        text = error_of(spark, scripted.url, pollTimeoutMs="1000")
        expect(text, "[PULSAR_READ_TIMEOUT]", NAME, "`pollTimeoutMs`")

    def test_the_broker_goes_away_for_good(
        self, spark: SparkSession, scripted: ScriptedBroker
    ) -> None:
        """In mid-read: what was tried, for how long, and the last reason."""
        scripted.always("FLOW", cut)
        text = error_of(spark, scripted.url, pollTimeoutMs="1000")
        expect(text, "[PULSAR_READ_TIMEOUT]", NAME, "`pollTimeoutMs`", "last reason")

    def test_rows_that_are_gone(
        self, spark: SparkSession, scripted: ScriptedBroker
    ) -> None:
        """Both positions, and the option to go on."""
        entry = single(b"")
        scripted.add_topic(NAME, [StoredFrame(entry.metadata, b"", 1, (9, 0))])
        text = error_of(spark, scripted.url, startingOffsets=f'{{"t": "{LEDGER}:3"}}')
        expect(text, "[PULSAR_DATA_LOSS]", NAME, f"{LEDGER}:3", "9:0", "failOnDataLoss")

    def test_offsets_of_another_topic(
        self, spark: SparkSession, scripted: ScriptedBroker
    ) -> None:
        """A name in the JSON that is not read is a mistake."""
        text = error_of(spark, scripted.url, startingOffsets='{"other": "earliest"}')
        expect(text, "[PULSAR_OPTION]", "startingOffsets", "default/other", NAME)


#: Options whose values are nobody's business. The first group is refused by this
#: version, the second one has no effect.
REFUSED_SECRETS = {
    "pulsar.client.authParams": f"token:{SECRET}",
    "pulsar.client.tlsKeyStorePassword": SECRET,
    "pulsar.client.socks5ProxyPassword": SECRET,
}
IGNORED_SECRETS = {"pulsar.admin.authParams": f"token:{SECRET}"}


class TestSecrets:
    @pytest.mark.parametrize("option", REFUSED_SECRETS)
    def test_they_are_in_no_error(self, spark: SparkSession, option: str) -> None:
        """The option is named, its value is not."""
        text = error_of(
            spark, "pulsar://127.0.0.1:1", **{option: REFUSED_SECRETS[option]}
        )
        expect(text, "[PULSAR_OPTION]", option)
        assert SECRET not in text

    def test_a_password_in_the_url(self, spark: SparkSession) -> None:
        """Nor is the URL repeated that holds one."""
        text = error_of(spark, f"pulsar://user:{SECRET}@127.0.0.1:6650")
        expect(text, "[PULSAR_OPTION]", "service.url must not contain")
        assert SECRET not in text

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
        expect(output, "10 rows", "[PULSAR_OPTION]", "INFO org.apache.spark")
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
