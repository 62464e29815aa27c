# SPDX-License-Identifier: Apache-2.0
"""The double's transactions, and the part of the query service that makes them.

What is written in a transaction is staged by its id, and stored by its commit: all of
it, or nothing where a producer has stored as high a number meanwhile. A session lives
as long as the stream that is attached to it, and its transactions no longer.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import grpc

from siblings.ydb_topic.tests.support.refusal import (
    ABORTED,
    BAD_SESSION,
    NOT_FOUND,
    SUCCESS,
    RefusalError,
)
from siblings.ydb_topic.tests.support.store import Store, Stored, Topic
from siblings.ydb_topic.tests.support.stubs import ydb_query_pb2 as query
from siblings.ydb_topic.tests.support.stubs import ydb_query_v1_pb2_grpc


@dataclass
class _Transaction:
    session: str
    staged: list[tuple[Topic, int, str, Sequence[Stored]]] = field(default_factory=list)


class Transactions:
    """All that are open. Each method holds the store's lock.

    Args:
        store: Where commits go.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self.sessions: set[str] = set()
        self._open: dict[str, _Transaction] = {}
        self._numbers = itertools.count(1)

    def begin_session(self) -> str:
        """Return the id of a new session."""
        with self.store.changed:
            id_ = f"session-{next(self._numbers)}"
            self.sessions.add(id_)
            return id_

    def end_session(self, session: str) -> None:
        """Forget a session, and what is staged in its transactions."""
        with self.store.changed:
            self.sessions.discard(session)
            self._open = {
                id_: one for id_, one in self._open.items() if one.session != session
            }
            self.store.changed.notify_all()

    def begin(self, session: str) -> str:
        """Return the id of a new transaction."""
        with self.store.changed:
            self._require_session(session)
            id_ = f"tx-{next(self._numbers)}"
            self._open[id_] = _Transaction(session)
            return id_

    def stage(
        self,
        id_: str,
        session: str,
        target: tuple[Topic, int, str],
        messages: Sequence[Stored],
    ) -> None:
        """Keep messages of a partition and producer for the commit."""
        with self.store.changed:
            self._find(id_, session).staged.append((*target, messages))

    def commit(self, id_: str, session: str) -> None:
        """Store what is staged, all or nothing; the transaction is over."""
        with self.store.changed:
            staged = self._find(id_, session).staged
            del self._open[id_]
            lowest: dict[tuple[str, int, str], int] = {}
            for topic, partition, producer, messages in staged:
                key = (topic.path, partition, producer)
                numbers = [message.seq_no for message in messages]
                lowest[key] = min([*numbers, lowest.get(key, numbers[0])])
                if producer and lowest[key] <= topic.last_seq_no(partition, producer):
                    raise RefusalError(ABORTED, "MinSeqNo violation failure")
            for topic, partition, producer, messages in staged:
                topic.append(partition, producer, messages)
            self.store.changed.notify_all()

    def roll_back(self, id_: str, session: str) -> None:
        """Drop what is staged."""
        with self.store.changed:
            self._find(id_, session)
            del self._open[id_]

    def _find(self, id_: str, session: str) -> _Transaction:
        self._require_session(session)
        found = self._open.get(id_)
        if found is None or found.session != session:
            raise RefusalError(NOT_FOUND, f"Transaction not found: {id_}")
        return found

    def _require_session(self, session: str) -> None:
        if session not in self.sessions:
            raise RefusalError(BAD_SESSION, f"Session not found: {session}")


def add_query_service(
    server: grpc.Server,
    transactions: Transactions,
    begin: Callable[[str, grpc.ServicerContext], dict[str, str]],
) -> None:
    """Let a server make sessions and transactions; it runs no queries.

    Args:
        server: Of the double.
        transactions: Those of the double.
        begin: Checks the headers of a call.
    """
    ydb_query_v1_pb2_grpc.add_QueryServiceServicer_to_server(
        _Query(transactions, begin), server
    )


class _Query(ydb_query_v1_pb2_grpc.QueryServiceServicer):  # type: ignore[misc]
    def __init__(
        self,
        transactions: Transactions,
        begin: Callable[[str, grpc.ServicerContext], dict[str, str]],
    ) -> None:
        self._transactions = transactions
        self._begin = begin

    def CreateSession(self, request: Any, context: Any) -> Any:  # noqa: N802
        def create(response: Any) -> None:
            response.session_id = self._transactions.begin_session()
            response.node_id = 1

        return self._call("CreateSession", query.CreateSessionResponse, context, create)

    def DeleteSession(self, request: Any, context: Any) -> Any:  # noqa: N802
        def delete(response: Any) -> None:
            self._transactions.end_session(request.session_id)

        return self._call("DeleteSession", query.DeleteSessionResponse, context, delete)

    def AttachSession(  # noqa: N802
        self, request: Any, context: grpc.ServicerContext
    ) -> Iterator[Any]:
        session, changed = request.session_id, self._transactions.store.changed

        def leave() -> None:
            self._transactions.end_session(session)

        yield query.SessionState(status=SUCCESS)
        if not context.add_callback(leave):
            leave()
        with changed:
            while session in self._transactions.sessions:
                changed.wait()

    def BeginTransaction(self, request: Any, context: Any) -> Any:  # noqa: N802
        def begin(response: Any) -> None:
            response.tx_meta.id = self._transactions.begin(request.session_id)

        return self._call(
            "BeginTransaction", query.BeginTransactionResponse, context, begin
        )

    def CommitTransaction(self, request: Any, context: Any) -> Any:  # noqa: N802
        def commit(response: Any) -> None:
            self._transactions.commit(request.tx_id, request.session_id)

        return self._call(
            "CommitTransaction", query.CommitTransactionResponse, context, commit
        )

    def RollbackTransaction(self, request: Any, context: Any) -> Any:  # noqa: N802
        def roll_back(response: Any) -> None:
            self._transactions.roll_back(request.tx_id, request.session_id)

        return self._call(
            "RollbackTransaction", query.RollbackTransactionResponse, context, roll_back
        )

    def _call(
        self,
        method: str,
        make: Callable[[], Any],
        context: grpc.ServicerContext,
        act: Callable[[Any], None],
    ) -> Any:
        response = make()
        try:
            self._begin(method, context)
            act(response)
        except RefusalError as refusal:
            return type(response)(status=refusal.status, issues=refusal.issues)
        response.status = SUCCESS
        return response
