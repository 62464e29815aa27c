# SPDX-License-Identifier: Apache-2.0
"""Commits under unloads, by a role that may not mend them: no silent loss."""

from __future__ import annotations

import random
import threading
import uuid
from typing import TYPE_CHECKING

import pytest

from pulsar_spark.client.pool import ConnectionPool
from pulsar_spark.client.requests import fan_out
from pulsar_spark.errors import BrokerError, TransactionLostError
from pulsar_spark.message_id import TxnId
from pulsar_spark.options import parse_write_options
from pulsar_spark.wire.commands import TxnAction, end_txn_on_partition
from tests.broker.secured.test_authentication import token, values_in
from tests.support.waiting import join
from tests.support.writes import write_batch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.support.secured import SecuredBroker

PARTS = 4


@pytest.fixture
def options(secured: SecuredBroker) -> Mapping[str, str]:
    """How a role that may read and write, and nothing else, writes to a new topic."""
    namespace = f"public/commits-{uuid.uuid4().hex[:8]}"
    secured.admin.create_namespace(namespace, keep=True)
    secured.admin.grant(namespace, "both", "produce", "consume")
    secured.admin.grant(namespace, "reader", "consume")
    topic = f"persistent://{namespace}/rows"
    secured.admin.create_partitioned(topic, PARTS)
    return {
        "service.url": secured.service_url,
        "topic": topic,
        "deliveryGuarantee": "exactly-once",
        **token(secured, "both"),
    }


def test_only_superusers_end_transactions(
    secured: SecuredBroker, options: Mapping[str, str]
) -> None:
    """Of others the request is refused, and is not worth another try."""
    given = parse_write_options(options, streaming=False)
    topic = f"{options['topic']}-partition-0"
    secured.admin.stats(topic)  # which loads it
    pool = ConnectionPool(given.client)
    try:
        request = end_txn_on_partition(TxnId(0, 10**6), topic, TxnAction.COMMIT)
        (answer,) = fan_out({0: pool.service()}, {0: request}, 30).values()
    finally:
        pool.close()
    assert isinstance(answer, BrokerError)
    assert not answer.retriable
    assert answer.code == "TransactionNotFound"
    assert "not a super user" in answer.message


@pytest.mark.matrix
def test_unloads_during_commits(
    secured: SecuredBroker, options: Mapping[str, str]
) -> None:
    """Rows of a commit are there once, or an error names topic partitions without."""
    topic = options["topic"]
    namespace = topic.removeprefix("persistent://").removesuffix("/rows")
    chosen = random.Random(1)
    written: set[str] = set()
    lost: set[str] = set()
    errors: list[str] = []
    for number in range(60):
        values = [f"{number}:{n}".encode() for n in range(40)]
        delay_s = 0.02 * chosen.random()
        admin = secured.admin
        unload = threading.Timer(delay_s, admin.unload_namespace, [namespace])
        rows = {value.decode() for value in values}
        try:
            write_batch(options, values, before_commit=unload.start)
            written |= rows
        except TransactionLostError as error:
            errors.append(error.message)
            lost |= rows
        join(unload, "the unload")
    stored = [
        value
        for partition in range(PARTS)
        for value in values_in(secured, f"{topic}-partition-{partition}")
    ]
    assert len(stored) == len(set(stored))
    assert written <= set(stored) <= written | lost
    assert written
    assert all(f"{topic}-partition-" in message for message in errors)
