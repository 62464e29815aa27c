# SPDX-License-Identifier: Apache-2.0
"""Pulsar transactions over a bare socket; the official Python client has none.

::

    with Transactions(service_url) as transactions:
        txn = transactions.begin(topic)
        publisher.send(*message(b"v"), txn=txn)
        transactions.end(txn, commit=True)
"""

from __future__ import annotations

from pulsar_spark.testing.embedded_broker import COORDINATOR_TOPIC
from pulsar_spark.wire import pulsar_api_pb2 as pb
from tests.support.raw_publisher import RawConnection, TxnId

_COMMIT, _ABORT = 0, 1  # TxnAction

#: How many may be open at a coordinator, where tests are about this limit.
OPEN_LIMIT = 8


class Transactions(RawConnection):
    """The first transaction coordinator of a broker.

    Args:
        service_url: Of the broker.
    """

    def __init__(self, service_url: str) -> None:
        super().__init__(service_url)
        self.lookup(f"{COORDINATOR_TOPIC}-partition-0")
        connect = pb.CommandTcClientConnectRequest(tc_id=0)
        self.ask("tcClientConnectRequest", connect, "tcClientConnectResponse")

    def begin(self, *topics: str, ttl_ms: int = 600_000) -> TxnId:
        """Open a transaction in which these topic partitions may be written."""
        request = pb.CommandNewTxn(tc_id=0, txn_ttl_millis=ttl_ms)
        reply = self.ask("newTxn", request, "newTxnResponse")
        txn = TxnId(reply.txnid_most_bits, reply.txnid_least_bits)
        if topics:
            add = pb.CommandAddPartitionToTxn(
                txnid_most_bits=txn.most,
                txnid_least_bits=txn.least,
                partitions=topics,
            )
            self.ask("addPartitionToTxn", add, "addPartitionToTxnResponse")
        return txn

    def end(self, txn: TxnId, *, commit: bool) -> None:
        """Commit or abort; returns when each topic partition has its marker."""
        request = pb.CommandEndTxn(
            txnid_most_bits=txn.most,
            txnid_least_bits=txn.least,
            txn_action=_COMMIT if commit else _ABORT,
        )
        self.ask("endTxn", request, "endTxnResponse")
