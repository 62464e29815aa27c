# SPDX-License-Identifier: Apache-2.0
"""Tokens, passwords, OAuth2 and permissions, on a broker that asks for them."""

from __future__ import annotations

import base64
import contextlib
import json
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter
from typing import TYPE_CHECKING, Any

import pulsar
import pytest

from pulsar_spark import AuthError, PulsarDataSource
from pulsar_spark.client.pool import ConnectionPool, shared_pool
from pulsar_spark.options import parse_read_options
from tests.support import docs, official, reading
from tests.support.key_pairs import rsa_pair
from tests.support.pulsar_proxy import PulsarProxy
from tests.support.secured import (
    ADMIN,
    NAMESPACE,
    PASSWORD,
    RENEWALS,
    USER,
    RenewedFile,
    SecuredBroker,
    TokenServer,
)
from tests.support.session import environment
from tests.support.standalone import StandaloneCluster
from tests.support.streaming import ROOT
from tests.support.waiting import await_true

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

JAVA = "org.apache.pulsar.client.impl.auth."
PLUGIN = "pulsar.client.authPluginClassName"
PARAMS = "pulsar.client.authParams"

#: Seconds that a token lives where it is to expire. Brokers look each second.
LIFE_S = 3

#: When a file has been renewed so often, the first token has expired for long.
TWO_LIVES = 2 * RENEWALS


@pytest.fixture
def oauth2(secured: SecuredBroker) -> Iterator[TokenServer]:
    """A server whose tokens the broker takes."""
    with TokenServer(secured.signer) as one:
        yield one


def topic_of(secured: SecuredBroker, values: list[str] | None = None) -> str:
    """A new topic with these values, written by the official client."""
    topic = f"persistent://{NAMESPACE}/t-{uuid.uuid4().hex[:8]}"
    secured.admin.create_topic(topic)
    publish(secured, topic, values or [])
    return topic


def publish(secured: SecuredBroker, topic: str, values: list[str]) -> None:
    """Write values by the official client, as a role that may."""
    keys = pulsar.AuthenticationToken(secured.signer.token("writer"))
    with official.client(secured.service_url, authentication=keys) as client:
        producer = client.create_producer(topic, block_if_queue_full=True)
        failed: list[object] = []

        def sent(result: pulsar.Result, _: object) -> None:
            if result != pulsar.Result.Ok:
                failed.append(result)

        for value in values:
            producer.send_async(value.encode(), sent)
        producer.flush()
        assert failed == []


def values_in(secured: SecuredBroker, topic: str) -> list[str]:
    """What an official reader finds, as a role that may."""
    keys = pulsar.AuthenticationToken(secured.signer.token("reader"))
    found = []
    with official.client(secured.service_url, authentication=keys) as client:
        reader = client.create_reader(topic, pulsar.MessageId.earliest)
        while reader.has_message_available():
            found.append(reader.read_next(20_000).data().decode())
    return found


def token(secured: SecuredBroker, role: str, life_s: float | None = None) -> Any:
    """Options of who has a token."""
    return {PLUGIN: "token", PARAMS: f"token:{secured.signer.token(role, life_s)}"}


def read(secured: SecuredBroker, topic: str, options: dict[str, str]) -> list[str]:
    """The values that such options read."""
    rows = reading.read(secured.service_url, {"topic": topic, **options})
    return [(row.value or b"").decode() for row in rows]


def refusal(secured: SecuredBroker, topic: str, options: dict[str, str]) -> str:
    """Why such options read nothing: said at once, not after many tries."""
    with pytest.raises(AuthError) as caught:
        read(secured, topic, options)
    assert not caught.value.retriable
    assert "was tried for" not in caught.value.message
    assert caught.value.broker == secured.service_url.removeprefix("pulsar://")
    return caught.value.message


class TestMethods:
    def test_each_of_them(
        self,
        secured: SecuredBroker,
        oauth2: TokenServer,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """In each form, under our name and Java's."""
        values = ["a", "b"]
        topic = topic_of(secured, values)
        text = secured.signer.token("reader")
        (tmp_path / "token").write_text(f"{text}\n")
        (tmp_path / "login").write_text(f"{USER}:{PASSWORD}")
        monkeypatch.setenv("PULSAR_SPARK_TOKEN", text)
        key = oauth2.key("reader", tmp_path / "key.json")
        as_java = json.dumps({"userId": USER, "password": PASSWORD})
        for plugin, params in (
            ("token", text),
            (f"{JAVA}AuthenticationToken", f"token:{text}"),
            ("token", f"file://{tmp_path}/token"),
            ("token", "env:PULSAR_SPARK_TOKEN"),
            ("basic", f"{USER}:{PASSWORD}"),
            ("basic", f"file:{tmp_path}/login"),
            (f"{JAVA}AuthenticationBasic", as_java),
            (
                f"{JAVA}oauth2.AuthenticationOAuth2",
                json.dumps({"issuerUrl": oauth2.url, "privateKey": key}),
            ),
            ("oauth2", oauth2.params("reader")),
        ):
            assert read(secured, topic, {PLUGIN: plugin, PARAMS: params}) == values
        as_map = {
            PLUGIN: "token",
            "pulsar.client.authParamMap": f'{{"token":"{text}"}}',
        }
        assert read(secured, topic, as_map) == values

    def test_who_is_not_known(self, secured: SecuredBroker) -> None:
        """Each is told what to change."""
        topic = topic_of(secured)
        assert "set `pulsar.client.authPluginClassName`" in refusal(secured, topic, {})
        other = SecuredBroker().signer.token("reader")
        for options, why in (
            (token(secured, "reader", -60), "The token of the role 'reader' in"),
            (token(secured, "reader", -60), f"in {PARAMS} expired at 20"),
            ({PLUGIN: "token", PARAMS: other}, "may have expired"),
            ({PLUGIN: "token", PARAMS: "abc"}, "may have expired"),
        ):
            text = refusal(secured, topic, options)
            assert "the method token" in text
            assert why in text
        basic = {PLUGIN: "basic", PARAMS: f"{USER}:wrong"}
        assert "the user and the password" in refusal(secured, topic, basic)

    def test_several_hosts(self, secured: SecuredBroker) -> None:
        """One that is not there does not hide why the other one refuses."""
        topic = topic_of(secured)
        url = f"{secured.service_url},127.0.0.1:1"
        options = {**token(secured, "reader", -60), "service.url": url, "topic": topic}
        with pytest.raises(AuthError, match="expired at 20") as caught:
            PulsarDataSource(options).schema()
        assert not caught.value.retriable

    def test_connections_are_not_shared(self, secured: SecuredBroker) -> None:
        """Two jobs of one process: each is who it is."""
        topic = topic_of(secured, ["a"])
        reader, stranger = token(secured, "reader"), token(secured, "stranger")
        assert read(secured, topic, reader) == ["a"]
        assert "'stranger' lacks" in refusal(secured, topic, stranger)
        assert read(secured, topic, reader) == ["a"]
        base = {"service.url": secured.service_url, "topic": topic}
        pools = [
            shared_pool(parse_read_options(base | one).client)
            for one in (reader, stranger, reader)
        ]
        assert pools[0] is pools[2] is not pools[1]


class TestPermissions:
    def test_reading(self, secured: SecuredBroker) -> None:
        """Role, topic and action are named; what the command does is enough."""
        topic = topic_of(secured, ["a"])
        text = refusal(secured, topic, token(secured, "nobody"))
        assert "The role 'nobody' lacks both consume and produce" in text
        text = refusal(secured, topic, token(secured, "writer"))
        assert (
            f"The role 'writer' lacks the action consume on the topic {topic}" in text
        )
        command = f"topics grant-permission {topic} --role nobody --actions consume"
        assert f"`pulsar-admin {command.replace('nobody', 'writer')}`" in text
        secured.admin.grant(topic, "nobody", "consume")
        await_true(lambda: is_allowed(secured, topic, "nobody"), "the permission")
        assert read(secured, topic, token(secured, "nobody")) == ["a"]

    def test_topics_of_a_namespace(self, secured: SecuredBroker) -> None:
        """The namespace is named."""
        pattern = {"topicsPattern": f"{NAMESPACE}/none-.*", **token(secured, "nobody")}
        with pytest.raises(AuthError) as caught:
            reading.read(secured.service_url, pattern)
        assert f"on the namespace {NAMESPACE}." in caught.value.message
        assert f"grant-permission {NAMESPACE} --role nobody" in caught.value.message

    def test_writing(self, secured: SecuredBroker, spark: SparkSession) -> None:
        """No row is there, and the action is named."""
        topic = topic_of(secured)
        rows = spark.range(3).selectExpr("CAST(id AS STRING) AS value")

        def write(role: str) -> None:
            options = {"service.url": secured.service_url, **token(secured, role)}
            writer = rows.coalesce(1).write.format("pulsar").mode("append")
            writer.options(topic=topic, **options).save()

        with pytest.raises(Exception, match="PULSAR_AUTH") as caught:
            write("reader")
        text = f"The role 'reader' lacks the action produce on the topic {topic}"
        assert text in str(caught.value)
        assert values_in(secured, topic) == []
        write("writer")
        assert values_in(secured, topic) == ["0", "1", "2"]

    def test_names_of_subscriptions(
        self, secured: SecuredBroker, spark: SparkSession, tmp_path: Path
    ) -> None:
        """All of ours begin with the prefix, that of the log of commits, too."""
        admin = secured.admin
        namespace = f"public/prefix-{uuid.uuid4().hex[:8]}"
        admin.create_namespace(namespace, keep=True)
        admin.grant(namespace, "both", "produce", "consume")
        admin.set_policy(namespace, "subscriptionAuthMode", "Prefix")
        names = [f"persistent://{namespace}/{name}" for name in ("in", "out")]
        for name in names:
            admin.create_topic(name)
        options = {"service.url": secured.service_url, **token(secured, "both")}
        rows = spark.range(9).selectExpr("CAST(id AS STRING) AS value")
        rows.write.format("pulsar").mode("append").options(
            topic=names[0], **options
        ).save()
        text = refusal(secured, names[0], token(secured, "both"))
        assert "Let `subscriptionPrefix`" in text
        assert "begin with the role 'both'" in text
        options["subscriptionPrefix"] = "both-jobs"
        query = (
            spark.readStream.format("pulsar")
            .options(topic=names[0], startingOffsets="earliest", **options)
            .load()
            .select("value")
            .writeStream.format("pulsar")
            .options(topic=names[1], deliveryGuarantee="exactly-once", **options)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(240)
        found = {
            subscription
            for topic in admin.topics(namespace)
            for subscription in admin.subscriptions(topic)
        }
        assert "both-jobs-commits" in found
        assert all(name.startswith("both-jobs-") for name in found), found
        prefixed = {"topic": names[1], **options}
        rows_read = reading.read(secured.service_url, prefixed)
        assert sorted(row.value or b"" for row in rows_read) == [
            b"%d" % i for i in range(9)
        ]


def is_allowed(secured: SecuredBroker, topic: str, role: str) -> bool:
    """Whether a role may read by now: brokers keep permissions for a while."""
    try:
        read(secured, topic, token(secured, role))
    except AuthError:
        return False
    return True


def slow_reader(url: str, topic: str, place: str) -> Any:
    """A reader by the token at a place, which takes little at a time."""
    options = {
        PLUGIN: "token",
        PARAMS: place,
        "topic": topic,
        "rowsPerArrowBatch": "100",
        "pulsar.reader.receiverQueueSize": "9",
    }
    return reading.reader_of(url, options)


def read_over_tokens(url: str, topic: str, file: RenewedFile) -> list[str]:
    """The values of a topic, which are read so slowly that tokens expire."""
    reader = slow_reader(url, topic, f"file:{file.path}")
    (partition,) = reader.partitions()
    found: list[str] = []
    for number, record_batch in enumerate(reader.read(partition)):
        await_true(lambda n=number: file.written > n, "a token")  # type: ignore[misc]
        rows = reading.to_rows(record_batch)
        found += [(row.value or b"").decode() for row in rows]
    assert file.written > TWO_LIVES
    return found


class TestExpiry:
    def test_a_connection_that_outlasts_tokens(
        self, secured: SecuredBroker, oauth2: TokenServer, tmp_path: Path
    ) -> None:
        """Challenges are answered, from a file and by OAuth2; it is never cut."""
        oauth2.life_s = LIFE_S
        topic = topic_of(secured)
        base = {"service.url": secured.service_url, "topic": topic}
        with RenewedFile(tmp_path / "t", secured.signer, "reader", LIFE_S) as file:
            both = (
                {PLUGIN: "token", PARAMS: f"file:{file.path}"},
                {PLUGIN: "oauth2", PARAMS: oauth2.params("reader")},
            )
            pools = [ConnectionPool(parse_read_options(base | o).client) for o in both]
            connections = [pool.service() for pool in pools]
            await_true(
                lambda: (
                    (file.written >= TWO_LIVES and len(oauth2.given) >= 3)
                    or not all(one.is_open for one in connections)
                ),
                "new tokens",
            )
            assert [repr(one._error) for one in connections] == ["None", "None"]
            for pool in pools:
                pool.close()

    def test_one_that_is_not_renewed(self, secured: SecuredBroker) -> None:
        """The connection ends, and the next one says why."""
        base = {"service.url": secured.service_url, "topic": topic_of(secured)}
        options = token(secured, "reader", LIFE_S)
        with ConnectionPool(parse_read_options(base | options).client) as pool:
            connection = pool.service()
            await_true(lambda: not connection.is_open, "the end of the connection")
            with pytest.raises(AuthError, match="expired at 20") as caught:
                pool.service()
            assert not caught.value.retriable

    @pytest.mark.soak
    @pytest.mark.parametrize("in_place", [False, True])
    def test_a_batch_read(
        self, secured: SecuredBroker, tmp_path: Path, in_place: bool
    ) -> None:
        """Every row once, in order, over several tokens, which may come by halves."""
        values = [str(number) for number in range(3000)]
        topic = topic_of(secured, values)
        with RenewedFile(
            tmp_path / "t", secured.signer, "reader", LIFE_S, in_place=in_place
        ) as file:
            assert read_over_tokens(secured.service_url, topic, file) == values

    def test_a_stream_that_writes(
        self, secured: SecuredBroker, spark: SparkSession, tmp_path: Path
    ) -> None:
        """From topic to topic, exactly once, on driver and executors."""
        source, sink = topic_of(secured), topic_of(secured)
        with RenewedFile(tmp_path / "t", secured.signer, "both", LIFE_S) as file:
            options = {
                "service.url": secured.service_url,
                PLUGIN: "token",
                PARAMS: f"file:{file.path}",
            }
            query = (
                spark.readStream.format("pulsar")
                .options(topic=source, startingOffsets="earliest", **options)
                .load()
                .select("value")
                .writeStream.format("pulsar")
                .options(topic=sink, deliveryGuarantee="exactly-once", **options)
                .option("checkpointLocation", str(tmp_path / "checkpoint"))
                .start()
            )
            sent: list[str] = []
            try:
                while file.written < TWO_LIVES:
                    assert query.isActive, query.exception()
                    more = [str(len(sent) + number) for number in range(50)]
                    publish(secured, source, more)
                    sent += more
                    time.sleep(0.2)
                query.processAllAvailable()
            finally:
                query.stop()
        assert Counter(values_in(secured, sink)) == Counter(sent)

    @pytest.mark.soak
    @pytest.mark.slow
    def test_through_pulsars_proxy(self, tmp_path: Path) -> None:
        """Broker and proxy ask for fresh tokens, and get them; every row comes once."""
        settings = {"proxyRoles": "proxy", "authenticateOriginalAuthData": "true"}
        with SecuredBroker(settings) as secured, contextlib.ExitStack() as stack:
            secured.admin.create_namespace(NAMESPACE, keep=True)
            for role in ("proxy", "reader", "writer"):
                secured.admin.grant(NAMESPACE, role, "produce", "consume")
            proxy = PulsarProxy(
                secured.service_url,
                secured.broker.admin_url,
                secured.proxy_settings("proxy"),
            )
            stack.enter_context(proxy)
            values = [str(number) for number in range(3000)]
            topic = topic_of(secured, values)
            file = RenewedFile(tmp_path / "t", secured.signer, "reader", LIFE_S)
            stack.enter_context(file)
            assert read_over_tokens(proxy.service_url, topic, file) == values

    @pytest.mark.soak
    def test_a_broker_that_restarts(
        self, secured: SecuredBroker, tmp_path: Path
    ) -> None:
        """It is no refusal: a read waits for it, and goes on with a fresh token."""
        values = [str(number) for number in range(2000)]
        topic = topic_of(secured, values)
        with RenewedFile(tmp_path / "t", secured.signer, "reader", LIFE_S) as file:
            reader = slow_reader(secured.service_url, topic, f"file:{file.path}")
            (partition,) = reader.partitions()
            found: list[str] = []
            restart = threading.Thread(target=lambda: secured.broker.restart(kill=True))
            for record_batch in reader.read(partition):
                if not found:
                    restart.start()
                rows = reading.to_rows(record_batch)
                found += [(row.value or b"").decode() for row in rows]
            restart.join(300)
            assert found == values


# -- Secrets -------------------------------------------------------------------------


def encodings(secret: str) -> set[bytes]:
    """A secret as it may be found: as it is, and inside of base64."""
    found = {secret.encode()}
    for shift in range(3):
        whole = base64.b64encode(b"x" * shift + secret.encode())
        found.add(whole[4 : len(whole) - 8])
    return found


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "workers",
    [
        pytest.param(0, marks=pytest.mark.matrix),
        pytest.param(2, marks=[pytest.mark.slow, pytest.mark.soak]),
    ],
)
def test_secrets_are_nowhere(
    secured: SecuredBroker, oauth2: TokenServer, tmp_path: Path, workers: int
) -> None:
    """Not in what a job prints and writes, when it succeeds and when it fails.

    With workers, also not in what executors on a cluster of Spark print and keep.
    """
    source, sink = topic_of(secured, ["a", "b"]), topic_of(secured)
    url = {"service.url": secured.service_url}
    inline = secured.signer.token("both")
    params = oauth2.params("both")
    other = params.replace(oauth2.clients["both"], wrong_secret := uuid.uuid4().hex)
    token_, wrong_token, client, wrong_client = (
        {PLUGIN: plugin, PARAMS: text, **url}
        for plugin, text in (
            ("token", f"token:{inline}"),
            ("token", f"token:{inline}x"),
            ("oauth2", params),
            ("oauth2", other),
        )
    )
    keys = rsa_pair()
    opens = {"encryption.privateKeys": keys.private}
    seals = {"encryption.keys": "k", "encryption.publicKeys": keys.public}
    job = {
        "folder": str(tmp_path),
        "master": "local[2]",
        "source": source,
        "sink": sink,
        "right": {"read": token_ | opens, "write": token_ | seals, "stream": client},
        "wrong": {
            "read": wrong_client | opens,
            "write": wrong_token | seals,
            "stream": wrong_token,
        },
        "sql": client,
    }
    with contextlib.ExitStack() as stack:
        if workers:
            cluster = StandaloneCluster(tmp_path / "cluster", workers)
            job["master"] = stack.enter_context(cluster).url
        output, processes = run(json.dumps(job), tmp_path)
    for act in ("read", "write", "stream"):
        assert f"DONE {act}".encode() in output
        assert f"FAILED {act}".encode() in output
    assert b"PULSAR_AUTH" in output
    assert b"PAGE SQL/" in output
    assert any((tmp_path / "events").rglob("*"))
    assert oauth2.given
    shown = {"output": output, "processes": processes}
    shown |= {str(p): p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    executors = [place for place in shown if "/worker-" in place and "std" in place]
    assert len(executors) >= workers
    line = keys.private.splitlines()[5]
    for secret in (inline, oauth2.clients["both"], wrong_secret, line, *oauth2.given):
        for form in encodings(secret):
            where = [place for place, text in shown.items() if form in text]
            assert where == [], context(shown[where[0]], form)


def run(job: str, folder: Path) -> tuple[bytes, bytes]:
    """Run the job; return all that it printed, and what lists of processes showed."""
    listed = []
    with (folder / "output").open("w+b") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.secret_job"],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=ROOT,
            env=environment(),
        )
        assert process.stdin is not None
        with process.stdin as stdin:
            stdin.write(f"{job}\n".encode())
        try:
            deadline = time.monotonic() + 480
            while process.poll() is None and time.monotonic() < deadline:
                ps = subprocess.run(
                    ["ps", "-eww", "-o", "args"], capture_output=True, check=True
                )
                listed.append(ps.stdout)
                time.sleep(0.5)
        finally:
            process.kill()
            process.wait(60)
        output.seek(0)
        printed = output.read()
    assert process.returncode == 0, printed[-4000:].decode(errors="replace")
    assert b"secret_job" in b"".join(listed)
    return printed, b"".join(listed)


def context(text: bytes, form: bytes) -> str:
    """What stands before a secret that was found, without it."""
    at = text.index(form)
    return text[max(0, at - 500) : at].decode(errors="replace")


# -- The documents -------------------------------------------------------------------


def test_examples(
    secured: SecuredBroker, oauth2: TokenServer, spark: SparkSession, tmp_path: Path
) -> None:
    """Those of the page on security run on a broker that asks who connects."""
    namespace = f"public/docs-{uuid.uuid4().hex[:8]}"
    secured.admin.create_namespace(namespace, keep=True)
    secured.admin.grant(namespace, "both", "produce", "consume")
    for name in ("orders", "orders-copy"):
        secured.admin.create_topic(f"persistent://{namespace}/{name}")
    (tmp_path / "token").write_text(secured.signer.token("both"))
    oauth2.key("both", tmp_path / "client.json")
    blocks = docs.snippets_of(docs.DOCS / "security.md", "Authentication")
    assert len(blocks) == 2
    for block in blocks:
        code = block.replace("pulsar://localhost:6650", secured.service_url)
        code = code.replace("public/default", namespace)
        code = code.replace("https://auth.example.com", oauth2.url)
        code = code.replace("/etc/pulsar/", f"{tmp_path}/").replace(
            '"/data/', f'"{tmp_path}/'
        )
        exec(compile(code, "snippet", "exec"), {"spark": spark})  # noqa: S102
    assert len(oauth2.given) > 0
    assert {form["audience"] for form in oauth2.forms} == {"urn:pulsar:orders"}
    assert ADMIN not in {form["client_id"] for form in oauth2.forms}
