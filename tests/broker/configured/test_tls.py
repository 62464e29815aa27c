# SPDX-License-Identifier: Apache-2.0
"""TLS with a real broker, with and without Spark, the official client beside ours.

The broker has a port for clear text, too: there tests write what is to be read, and
look at what was written. It knows clients that show a certificate by the name in it.
"""

from __future__ import annotations

import contextlib
import shutil
import ssl
import threading
import uuid
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pulsar
import pytest

from pulsar_spark.client.connect import connect
from pulsar_spark.client.pool import ConnectionPool
from pulsar_spark.errors import TlsError
from pulsar_spark.options import parse_read_options
from pulsar_spark.testing.admin import Admin
from pulsar_spark.wire import commands
from spark_topics.client.reached import forget_reached
from tests.support import docs
from tests.support.certificates import Authority, Pair
from tests.support.link_proxy import LinkProxy, _Connection, _Pipe
from tests.support.official import PATIENCE_S, QUIET, produce, read_back
from tests.support.reading import read
from tests.support.streaming import Query, publish_numbers
from tests.support.waiting import await_true

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from pulsar_spark.testing.embedded_broker import EmbeddedBroker

C = "pulsar.client."
PARTS = 2
QUICK = {
    f"{C}maxBackoffIntervalNanos": "500000000",
    # A broker that starts on a busy machine takes its time.
    f"{C}lookupTimeoutMs": "240000",
    f"{C}operationTimeoutMs": "240000",
    f"{C}connectionTimeoutMs": "60000",
}


class Site:
    """A broker, and the files that it and its clients have."""

    def __init__(self, broker: EmbeddedBroker, authority: Authority) -> None:
        self.broker = broker
        self.folder = folder = authority.folder
        self.authority = authority
        self.client = self.authority.issue("orders", hosts=())
        # What clients trust: a file of its own, as on another node.
        self.trusted = folder / "trusted.pem"
        self.trusted.write_bytes(self.authority.certificate.read_bytes())

    def options(self, topic: str = "", url: str = "", **more: str) -> dict[str, str]:
        """Options of a read or a write by TLS."""
        return {
            "service.url": url or self.broker.tls_url,
            f"{C}tlsTrustCertsFilePath": str(self.trusted),
            **({"topic": topic} if topic else {}),
            **QUICK,
            **more,
        }

    @property
    def tls_port(self) -> int:
        """The broker's."""
        return int(self.broker.tls_url.rpartition(":")[2])


@pytest.fixture(scope="module")
def site(configured: EmbeddedBroker, authority: Authority) -> Site:
    """A broker with TLS."""
    return Site(configured, authority)


@pytest.fixture
def admin(site: Site) -> Admin:
    """Admin calls to that broker."""
    return Admin(site.broker.admin_url)


@pytest.fixture
def topic(admin: Admin) -> str:
    """A topic with two partitions, in a namespace of its own."""
    namespace = f"public/tls-{uuid.uuid4().hex[:8]}"
    admin.create_namespace(namespace, keep=True)
    name = f"persistent://{namespace}/rows"
    admin.create_partitioned(name, PARTS)
    return name


class Recorder(LinkProxy):
    """A link that keeps what clients and the broker say.

    Attributes:
        said: What went up each connection, and what came down.
    """

    def __init__(self, port: int) -> None:
        super().__init__(target_port=port)
        self.said: dict[_Pipe, bytearray] = {}

    def _read(self, connection: _Connection, pipe: _Pipe) -> None:
        before = pipe.pending
        super()._read(connection, pipe)
        if pipe.pending and pipe.pending is not before:
            self.said.setdefault(pipe, bytearray()).extend(pipe.pending)


def records(data: bytes) -> Counter[int]:
    """How many TLS records of each type some bytes are; nothing else is in there."""
    found: Counter[int] = Counter()
    at = 0
    while at + 5 <= len(data):  # the last one may be cut
        assert 20 <= data[at] <= 23, data[at : at + 40]
        assert data[at + 1] == 3
        assert data[at + 2] in (1, 3)
        size = int.from_bytes(data[at + 3 : at + 5], "big")
        assert size <= 16384 + 256
        found[data[at]] += 1
        at += 5 + size
    return found


def official(site: Site, **more: Any) -> pulsar.Client:
    """The official client, by TLS."""
    return pulsar.Client(
        site.broker.tls_url,
        tls_trust_certs_file_path=str(site.trusted),
        tls_validate_hostname=True,
        operation_timeout_seconds=PATIENCE_S,
        logger=QUIET,
        **more,
    )


def numbers(site: Site, topic: str) -> Counter[str]:
    """The values in a topic, by way of the port for clear text."""
    rows = read_back(site.broker.service_url, topic, partitions=PARTS)
    return Counter((row.value or b"").decode() for row in rows)


def everything(count: int) -> Counter[str]:
    """The values of so many rows in each partition, once each."""
    return Counter(
        f"{part}:{number}" for part in range(PARTS) for number in range(count)
    )


def test_rows_of_the_official_client(site: Site, topic: str) -> None:
    """It writes by TLS, and both read the same, ours by TLS, too."""
    values = [f"{n}".encode() * 500 for n in range(200)]
    one = official(site)
    try:
        sender = one.create_producer(f"{topic}-partition-0", batching_enabled=True)
        for value in values:
            sender.send_async(value, None)
        sender.flush()
        sender.close()
    finally:
        one.close()
    rows = read(site.broker.tls_url, site.options(topic))
    assert [row.value for row in rows] == values
    assert rows == read_back(site.broker.service_url, topic, partitions=PARTS)


def test_a_spark_write_and_a_read(site: Site, topic: str, spark: SparkSession) -> None:
    """Both in tasks of Spark; the official client reads what was written by TLS."""
    rows = spark.range(5000).selectExpr("concat('row-', id) AS value")
    rows.write.format("pulsar").options(**site.options(topic)).mode("append").save()
    back = spark.read.format("pulsar").options(**site.options(topic)).load()
    expected = {f"row-{n}".encode() for n in range(5000)}
    found = [bytes(row.value) for row in back.select("value").collect()]
    assert len(found) == 5000
    assert set(found) == expected
    one = official(site)
    try:
        seen = set()
        for part in range(PARTS):
            reader = one.create_reader(
                f"{topic}-partition-{part}", pulsar.MessageId.earliest
            )
            while reader.has_message_available():
                seen.add(reader.read_next(60_000).data())
            reader.close()
    finally:
        one.close()
    assert seen == expected


def test_nothing_is_in_clear_text(site: Site, topic: str, spark: SparkSession) -> None:
    """Whatever a write, a read and their lookups say is in records of TLS."""
    secret = "nobody-may-see-this"
    with Recorder(site.tls_port) as link:
        url = f"pulsar+ssl://127.0.0.1:{link.port}"
        options = site.options(topic, url)
        rows = spark.range(100).selectExpr(f"concat('{secret}-', id) AS value")
        rows.write.format("pulsar").options(**options).mode("append").save()
        assert spark.read.format("pulsar").options(**options).load().count() == 100
        connections = link.counters.accepted
        said = {pipe: bytes(data) for pipe, data in link.said.items()}
    assert len(said) == 2 * connections
    for pipe, data in said.items():
        found = records(data)
        assert found[23] > 0, "no encrypted record"
        assert data[0] == 22, f"it begins with a handshake, {pipe.up}"
        for word in (secret, topic, "pulsar-spark"):
            assert word.encode() not in data
    everything_else = sum(numbers(site, topic).values())
    assert everything_else == 100


def test_links_that_break(site: Site, topic: str) -> None:
    """Connections end anywhere inside a record, and each row comes once."""
    count = 3000
    padding = "." * 200

    def write(part: int) -> None:
        values = [f"{part}:{n}{padding}".encode() for n in range(count)]
        produce(site.broker.service_url, f"{topic}-partition-{part}", values, batch=50)

    with ThreadPoolExecutor(PARTS) as writers:
        list(writers.map(write, range(PARTS)))
    with LinkProxy(target_port=site.tls_port) as link:
        url = f"pulsar+ssl://127.0.0.1:{link.port}"
        link.cut_every((30_000, 400_000), seed=3)
        rows = read(url, site.options(topic, url))
        link.pass_through()
        cuts = link.counters.cut
    found = [(row.value or b"").decode().removesuffix(padding) for row in rows]
    assert sorted(found) == sorted(everything(count).elements())
    assert cuts >= 3


@pytest.mark.slow
@pytest.mark.matrix
def test_a_stream_goes_on_with_renewed_certificates(
    site: Site, topic: str, admin: Admin, spark: SparkSession, tmp_path: Path
) -> None:
    """Exactly once, while the broker is killed and comes back as another authority's.

    It takes no clients of the old one, either. Who had read the files once and for all
    would not trust it any more, nor be trusted.

    The namespace deduplicates: without that, a kill amid a transaction fails its task,
    and this session runs no task twice.
    """
    sink = topic.replace("rows", "copies")
    namespace = sink.removeprefix("persistent://").rpartition("/")[0]
    admin.set_deduplication(namespace, enabled=True)
    admin.create_partitioned(sink, PARTS)
    shown = {
        f"{C}authPluginClassName": "tls",
        f"{C}tlsCertificateFilePath": str(site.client.certificate),
        f"{C}tlsKeyFilePath": str(site.client.key),
    }
    query = Query(
        tmp_path / "query",
        site.options(
            topic, startingOffsets="earliest", maxRowsPerTrigger="300", **shown
        ),
        sink=site.options(sink, deliveryGuarantee="exactly-once", **shown),
    )
    plain = site.broker.service_url

    def seen() -> int:
        """Rows in the sink; none where a broker that has just started cannot tell."""
        with contextlib.suppress(pulsar.PulsarException):
            return sum(numbers(site, sink).values())
        return 0

    publish_numbers(plain, topic, range(PARTS), range(500))
    running = query.start(spark)
    try:
        await_true(lambda: seen() > 300, "the first rows")
        renewed = Authority(site.folder, "renewed")
        renewed.issue("server", file="server")
        before, site.authority = site.authority, renewed
        site.trusted.write_bytes(
            before.certificate.read_bytes() + renewed.certificate.read_bytes()
        )
        shutil.copy(renewed.certificate, before.certificate)  # whom the broker trusts
        renewed.issue("orders", hosts=(), file="orders")
        site.broker.restart(kill=True)
        assert _issuer(site) == "renewed.test"
        publish_numbers(plain, topic, range(PARTS), range(500, 800))
        await_true(
            lambda: seen() >= PARTS * 800 or running.exception() is not None,
            "all rows",
            240,
        )
        assert running.exception() is None, str(running.exception())
    finally:
        running.stop()
    assert numbers(site, sink) == everything(800)
    # Tests of transactions share the broker.
    await_true(lambda: not admin.open_transactions(), "the end of all transactions")


def _issuer(site: Site) -> str:
    """Who has signed what the broker shows."""
    from cryptography import x509

    pem = ssl.get_server_certificate(("127.0.0.1", site.tls_port), timeout=60)
    found = x509.load_pem_x509_certificate(pem.encode()).issuer
    return found.rfc4514_string().removeprefix("CN=")


def test_a_certificate_is_an_identity(site: Site, topic: str) -> None:
    """The broker takes the client for the role that its certificate names."""
    given = {
        f"{C}authPluginClassName": "tls",
        f"{C}tlsCertificateFilePath": str(site.client.certificate),
        f"{C}tlsKeyFilePath": str(site.client.key),
    }
    options = parse_read_options(site.options(topic, **given)).client
    with ConnectionPool(options) as pool:
        assert pool.service().server_version.startswith("Pulsar")
    log = site.broker.log_file.read_text(errors="replace")
    assert "connected with role=orders using authMethod=tls" in log


def test_a_stranger_has_no_identity(site: Site, topic: str) -> None:
    """A certificate of another authority ends the connection, and says why."""
    stranger: Pair = Authority(site.folder, "elsewhere").issue(
        "orders", file="stranger"
    )
    params = f"tlsCertFile:{stranger.certificate},tlsKeyFile:{stranger.key}"
    given = {f"{C}authPluginClassName": "tls", f"{C}authParams": params}
    options = parse_read_options(site.options(topic, **given)).client
    with pytest.raises(TlsError, match="does not accept our client certificate"):
        ConnectionPool(options).service()


@pytest.mark.parametrize(
    ("scheme", "port", "part"),
    [
        ("pulsar", "tls_url", "wants TLS at this port"),
        ("pulsar+ssl", "service_url", "closed the connection when TLS began"),
    ],
)
def test_the_other_port(site: Site, scheme: str, port: str, part: str) -> None:
    """A real broker ends such a connection without a word."""
    forget_reached()
    address = getattr(site.broker, port).partition("://")[2]
    given = {"service.url": f"{scheme}://{address}", "topic": "t"}
    options = parse_read_options(given).client
    with pytest.raises(TlsError, match=part):
        connect(address, options)


def test_both_directions_at_once(site: Site, topic: str) -> None:
    """A connection that sends much while much comes mixes nothing up."""
    options = parse_read_options(site.options(topic)).client
    with ConnectionPool(options) as pool:
        connection = pool.service()
        wrong: list[object] = []

        def ask() -> None:
            for _ in range(200):
                answer = connection.ask(commands.partitioned_metadata(topic), 60)
                if answer.partitions != PARTS:
                    wrong.append(answer)

        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
        assert connection.is_open
        assert not wrong


def test_the_examples_of_the_documents(
    site: Site, topic: str, spark: SparkSession, tmp_path: Path
) -> None:
    """Files are where they say, and rows arrive."""
    (tmp_path / "ca.pem").write_bytes(site.trusted.read_bytes())
    for store, path in (
        ("trust", site.authority.trust_store("trust-secret")),
        ("client", site.client.key_store("key-secret")),
    ):
        (tmp_path / f"{store}.p12").write_bytes(path.read_bytes())
    (tmp_path / "trust-password").write_text("trust-secret\n")
    (tmp_path / "key-password").write_text("key-secret\n")
    read_, write = docs.snippets_of(docs.DOCS / "security.md", "TLS")
    for block in (write, read_):
        code = block.replace("pulsar+ssl://localhost:6651", site.broker.tls_url)
        code = code.replace("public/default/orders", topic)
        code = code.replace("/etc/pulsar/", f"{tmp_path}/")
        exec(compile(code, "snippet", "exec"), {"spark": spark})  # noqa: S102
    assert sum(numbers(site, topic).values()) == 100
