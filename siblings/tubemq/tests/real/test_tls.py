# SPDX-License-Identifier: Apache-2.0
"""TLS, and tokens that brokers ask for, on real servers that have both."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from siblings.tubemq.tests.real.servers import send
from siblings.tubemq.tests.support.servers import LOOPBACK, Topic, TubeMQ
from siblings.tubemq.tests.support.tls import tls_settings
from tests.support import docs
from tests.support.certificates import Authority
from tests.support.waiting import await_true
from tubemq_spark.client.brokers import BrokerPool
from tubemq_spark.client.masters import Masters
from tubemq_spark.errors import AuthError, TlsError
from tubemq_spark.options import ClientOptions, ReadOptions
from tubemq_spark.options.tls import TlsOptions
from tubemq_spark.source.batch_plan import plan_batch
from tubemq_spark.source.range_reader import RangeReader
from tubemq_spark.wire.messages import Token

PAGE = Path(__file__).parents[2] / "README.md"
pytestmark = [pytest.mark.slow, pytest.mark.soak]

#: Until what was written counts as there, or a broker begins to ask for tokens.
PATIENCE_S = 300.0


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def tube(authority: Authority) -> Iterator[TubeMQ]:
    """Servers with TLS, whose broker asks for tokens."""
    with TubeMQ(
        [Topic("demo", stores=2)],
        broker_settings={"visitTokenCheckInValidTimeMs": "60000"},
        master_settings={"startVisitTokenCheck": "true"},
        tls_settings=tls_settings(authority, authority.issue("server")),
    ) as servers:
        yield servers


@pytest.fixture(scope="module")
def tls(authority: Authority) -> TlsOptions:
    identity = authority.issue("client", hosts=()).combined()
    return TlsOptions(
        enable=True,
        trust_path=str(authority.certificate),
        identity_path=str(identity),
    )


def options_of(tube: TubeMQ, tls: TlsOptions, role: str = "master1_tls") -> ReadOptions:
    client = ClientOptions(
        masters=(f"{LOOPBACK}:{tube.ports[role]}",),
        operation_timeout_s=PATIENCE_S,
        tls=tls,
    )
    return ReadOptions(client, ("demo",), group="tests-tls")


def test_the_page_runs(
    spark: SparkSession, tube: TubeMQ, tls: TlsOptions, tmp_path: Path
):
    """What README.md shows of TLS and users does what it says."""
    (tmp_path / "password").write_text("of-the-user\n")
    names: dict[str, Any] = {"spark": spark}
    (snippet,) = docs.snippets_of(PAGE, "TLS and users")
    for shown, here in (
        ("master-1:8716,master-2:8716", f"{LOOPBACK}:{tube.ports['master1_tls']}"),
        ("/etc/tubemq/authority.pem", str(tls.trust_path)),
        ("/etc/tubemq/client.pem", str(tls.identity_path)),
        ("/etc/tubemq/password", str(tmp_path / "password")),
    ):
        assert shown in snippet
        snippet = snippet.replace(shown, here)
    exec(snippet, names)  # noqa: S102
    read = spark.read.format("tubemq").options(**names["secured"])

    def found() -> set[int]:
        frame = read.options(topic="demo", group="reports").load()
        return {int(row.value) for row in frame.select("value").collect()}

    await_true(lambda: found() == set(range(1000)), "the rows", PATIENCE_S)
    assert names["frame"].count() <= 1000


def test_all_connections_are_to_the_ports_for_tls(tube: TubeMQ, tls: TlsOptions):
    options = options_of(tube, tls)
    with Masters(options.client) as masters:
        view = masters.readable("tests-tls", ["demo"])
    assert view.brokers == {1: f"{LOOPBACK}:{tube.ports['broker1_tls']}"}


def test_a_client_without_a_certificate_is_told(tube: TubeMQ, tls: TlsOptions):
    options = options_of(tube, replace(tls, identity_path=None))
    with (
        Masters(options.client) as masters,
        pytest.raises(TlsError, match=r"client certificate.*`tls\.keystore\.path`"),
    ):
        masters.readable("tests-tls", ["demo"])


@pytest.mark.parametrize("role", ["master1", "broker1"])
def test_the_wrong_port_is_told(tube: TubeMQ, tls: TlsOptions, role: str):
    for port, settings, text in (
        (f"{role}_tls", TlsOptions(), "wants TLS at this port"),
        (role, tls, "speaks TubeMQ without TLS at this port"),
    ):
        with (
            Masters(options_of(tube, settings, port).client) as masters,
            pytest.raises(TlsError, match=text),
        ):
            masters.readable("tests-tls", ["demo"])


def test_a_token_that_is_too_old_is_replaced(
    tube: TubeMQ, tls: TlsOptions, monkeypatch: pytest.MonkeyPatch
):
    """A broker begins to ask for tokens a minute after it came."""
    send(tube, "demo", [b"0"], confirm_flush=True)
    options = options_of(tube, tls)
    pool = BrokerPool(options.client)
    try:
        tasks = [
            replace(task, token=Token(1, "")) for task in plan_batch(pool, options)
        ]

        def is_refused() -> bool:
            reader = RangeReader(pool, tasks[0], options)
            monkeypatch.setattr(reader._registrar, "_renewed", lambda _: None)
            try:
                next(reader.pieces())
            except AuthError as error:
                return "Visit Authorized Token is invalid" in error.message
            return False

        await_true(is_refused, "a broker that asks for tokens", PATIENCE_S)
        for task in tasks:
            reader = RangeReader(pool, task, options)
            count = sum(len(piece.messages) for piece in reader.pieces())
            assert count == task.range.entries
        assert pool.tokens.newest(Token(1, "")) != Token(1, "")
    finally:
        pool.close()
