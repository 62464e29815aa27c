# SPDX-License-Identifier: Apache-2.0
"""Users, as far as stock servers look: a name, a signature, and the clock.

They know no passwords, and their brokers want a token that their masters never give.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from siblings.tubemq.tests.support.servers import Topic, TubeMQ
from tubemq_spark.client import identity
from tubemq_spark.client.brokers import BrokerPool
from tubemq_spark.client.masters import Masters, Producer
from tubemq_spark.errors import AuthError
from tubemq_spark.options import ClientOptions, ReadOptions, WriteOptions
from tubemq_spark.options.secret import Secret
from tubemq_spark.sink.rows import Row
from tubemq_spark.sink.sender import Sender
from tubemq_spark.source.batch_plan import plan_batch
from tubemq_spark.wire.attributes import Stored

pytestmark = [pytest.mark.slow, pytest.mark.soak]

PATIENCE_S = 300.0


@pytest.fixture(scope="module")
def tube() -> Iterator[TubeMQ]:
    """Servers that ask for users."""
    with TubeMQ(
        [Topic("demo")],
        master_settings={
            "startProduceAuthenticate": "true",
            "startConsumeAuthenticate": "true",
        },
    ) as servers:
        yield servers


@pytest.fixture
def known(tube: TubeMQ) -> ClientOptions:
    return ClientOptions(
        masters=(tube.masters,),
        operation_timeout_s=PATIENCE_S,
        user="reports",
        password=Secret("of-the-user", "usr.password"),
    )


def test_a_master_lets_a_user_in(known: ClientOptions):
    with Masters(known) as masters:
        assert masters.readable("tests-users", ["demo"]).topics["demo"].partitions
        producer = Producer(masters, ["demo"])
        for _ in range(2):  # a registration and a heartbeat, a heartbeat
            assert producer.view().topics["demo"].partitions
        producer.close()


def test_a_master_does_not_let_nobody_in(known: ClientOptions):
    nobody = replace(known, user=None, password=None)
    with Masters(nobody) as masters, pytest.raises(AuthError, match="415") as caught:
        masters.readable("tests-users", ["demo"])
    assert "usr.name" in caught.value.message


@pytest.mark.parametrize("minutes", [-10, 10])
def test_a_clock_that_is_wrong_is_told(
    known: ClientOptions, monkeypatch: pytest.MonkeyPatch, minutes: int
):
    class Clock:
        """Ahead, or behind."""

        @staticmethod
        def time_ns() -> int:
            return time.time_ns() + minutes * 60 * 10**9

    monkeypatch.setattr(identity, "time", Clock)
    with (
        Masters(known) as masters,
        pytest.raises(AuthError, match=r"clock of .* and the server's differ"),
    ):
        masters.readable("tests-users", ["demo"])


def test_a_broker_asks_for_a_token_that_no_stock_master_gives(known: ClientOptions):
    pool = BrokerPool(known)
    message = r"authAuthorizedToken is Blank.*The master gave no token for this user"
    with pytest.raises(AuthError, match=message):
        plan_batch(pool, ReadOptions(known, ("demo",), group="tests-users"))
    sender = Sender(pool, WriteOptions(known))
    sender.send([Row("demo", Stored(b"x", 0), None, None, None, None)])
    with pytest.raises(AuthError, match=message):
        sender.finish()
    sender.close()
    pool.close()
