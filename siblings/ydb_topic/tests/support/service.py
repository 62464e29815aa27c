# SPDX-License-Identifier: Apache-2.0
"""A double of YDB's topic service on the official stubs, served over gRPC.

It keeps what the documents say and refuses what they forbid. What only a server can
tell (quotas, moves of tablets, rights, how long producers are remembered) it cannot.

::

    with TopicService() as service:
        service.store.create("/local/t", partitions=2)
        ...  # clients at service.endpoint
        service.store.stored("/local/t")
"""

from __future__ import annotations

import base64
import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent import futures
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import grpc

from siblings.ydb_topic.tests.support.faults import Acks, At, Fault, Faults
from siblings.ydb_topic.tests.support.read_stream import ReadStream
from siblings.ydb_topic.tests.support.refusal import (
    ALREADY_EXISTS,
    BAD_REQUEST,
    SCHEME_ERROR,
    SUCCESS,
    UNAUTHORIZED,
    EndedError,
    RefusalError,
)
from siblings.ydb_topic.tests.support.store import Partition, Store, Topic
from siblings.ydb_topic.tests.support.stubs import (
    ydb_auth_pb2,
    ydb_auth_v1_pb2_grpc,
    ydb_discovery_pb2,
    ydb_discovery_v1_pb2_grpc,
    ydb_operation_pb2,
    ydb_topic_v1_pb2_grpc,
)
from siblings.ydb_topic.tests.support.stubs import ydb_topic_pb2 as pb
from siblings.ydb_topic.tests.support.transactions import (
    Transactions,
    add_query_service,
)
from siblings.ydb_topic.tests.support.write_stream import WriteStream

DATABASE = "/local"


@dataclass(frozen=True)
class Logged:
    """One request as it came.

    Attributes:
        method: Of the service.
        session: Which stream, counted from 1; 0 for other calls.
        request: The message.
        metadata: The headers of the call.
    """

    method: str
    session: int
    request: Any
    metadata: dict[str, str]


class TopicService:
    """The double. A context that serves.

    Args:
        tls: Private key and certificate chain as PEM; None for plain text.
        tokens: Who may come, and with what rights of ``read``, ``write``; None for
            everyone.
        users: Passwords by name, for logins.

    Attributes:
        store: The topics.
        transactions: What is staged.
        faults: What goes wrong.
        log: The requests that came.
        logins: How often somebody logged in.
    """

    def __init__(
        self,
        *,
        tls: tuple[bytes, bytes] | None = None,
        tokens: dict[str, frozenset[str]] | None = None,
        users: dict[str, str] | None = None,
        token_life_s: int = 3600,
    ) -> None:
        self.store = Store(DATABASE)
        self.transactions = Transactions(self.store)
        self.faults = Faults()
        self.tokens = tokens
        self.users = users or {}
        self.log: list[Logged] = []
        self.logins = 0
        self._token_life_s = token_life_s
        self._tls = tls
        self._lock = threading.Lock()
        self._streams = 0
        self._writers: dict[tuple[str, str], WriteStream] = {}
        self._holders: dict[tuple[str, str, int], ReadStream] = {}
        self.writers: set[WriteStream] = set()
        self.readers: set[ReadStream] = set()
        self._server: grpc.Server | None = None
        self.port = 0

    @property
    def endpoint(self) -> str:
        """Return where it listens, as a URL with the database."""
        scheme = "grpcs" if self._tls else "grpc"
        return f"{scheme}://localhost:{self.port}{DATABASE}"

    def count(self, method: str, kind: str = "") -> int:
        """Return how many requests came.

        Args:
            method: Of the service.
            kind: Of the stream's requests; "" for all.
        """
        with self._lock:
            return Counter(
                (one.method, _kind(one.request) if kind else "") for one in self.log
            )[method, kind]

    def requests(self, method: str, kind: str) -> list[Any]:
        """Return the requests of one kind in the order in which they came."""
        with self._lock:
            return [
                getattr(one.request, kind)
                for one in self.log
                if one.method == method and _kind(one.request) == kind
            ]

    def __enter__(self) -> TopicService:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Listen: where it did before, or on a free port."""
        server = grpc.server(
            futures.ThreadPoolExecutor(64),
            options=[
                ("grpc.max_receive_message_length", 120_000_000),
                ("grpc.max_send_message_length", 120_000_000),
                ("grpc.so_reuseport", 0),
            ],
        )
        ydb_topic_v1_pb2_grpc.add_TopicServiceServicer_to_server(_Topics(self), server)
        ydb_discovery_v1_pb2_grpc.add_DiscoveryServiceServicer_to_server(
            _Discovery(self), server
        )
        ydb_auth_v1_pb2_grpc.add_AuthServiceServicer_to_server(_Auth(self), server)
        add_query_service(server, self.transactions, self.begin)
        # Not "localhost": one of its two addresses is enough for gRPC, and another
        # process may have the port at the other.
        address = f"127.0.0.1:{self.port}"
        if self._tls:
            credentials = grpc.ssl_server_credentials([self._tls])
            self.port = server.add_secure_port(address, credentials)
        else:
            self.port = server.add_insecure_port(address)
        server.start()
        self._server = server

    def stop(self) -> None:
        """Cut all streams and listen no more; what is stored stays."""
        if self._server is not None:
            with self.store.changed:
                for inbox in [s.inbox for s in self.writers | self.readers]:
                    inbox.leave()
            self._server.stop(grace=0).wait(10)
            self._server = None

    # -- For the services below ---------------------------------------------------

    def begin(self, method: str, context: grpc.ServicerContext) -> dict[str, str]:
        """Check the headers of a call; return them."""
        headers = {str(k): str(v) for k, v in context.invocation_metadata()}
        if not headers.get("x-ydb-database"):
            raise RefusalError(BAD_REQUEST, "no x-ydb-database")
        if self.tokens is not None:
            ticket = headers.get("x-ydb-auth-ticket", "")
            if ticket not in self.tokens:
                context.abort(grpc.StatusCode.UNAUTHENTICATED, "Access denied")
            right = _RIGHTS.get(method)
            if right and right not in self.tokens[ticket]:
                raise RefusalError(UNAUTHORIZED, f"no right to {right}")
        return headers

    def check_token(self, token: str) -> None:
        """Refuse a token that is not known."""
        if self.tokens is not None and token not in self.tokens:
            raise RefusalError(UNAUTHORIZED, "token is not valid")

    def record(
        self, method: str, session: int, request: Any, headers: dict[str, str]
    ) -> None:
        """Keep a request."""
        with self._lock:
            self.log.append(Logged(method, session, request, headers))

    def next_stream(self) -> int:
        """Return the number of a new stream."""
        with self._lock:
            self._streams += 1
            return self._streams

    def strike(self, context: grpc.ServicerContext) -> Callable[[Fault], None]:
        """Return what carries out faults that end a call."""

        def end(fault: Fault) -> None:
            if fault.grpc is not None:
                context.abort(fault.grpc, fault.message)
            if fault.status:
                raise RefusalError(fault.status, fault.message)
            if fault.cuts:
                raise EndedError

        return end

    def take_over(self, stream: WriteStream) -> None:
        """Let a session of a producer end the older one."""
        assert stream.key is not None
        older = self._writers.get(stream.key)
        self._writers[stream.key] = stream
        if older is not None and older is not stream:
            older.kill(
                RefusalError(
                    BAD_REQUEST, "ownership session is killed by another session"
                )
            )

    def leave(self, stream: WriteStream) -> None:
        """Forget a write session that is over."""
        with self.store.changed:
            self.writers.discard(stream)
            if stream.key is not None and self._writers.get(stream.key) is stream:
                del self._writers[stream.key]

    def hold(self, stream: ReadStream, key: tuple[str, str, int]) -> bool:
        """Give a partition to one session of a consumer."""
        return self._holders.setdefault(key, stream) is stream

    def release(self, stream: ReadStream) -> None:
        """Forget a read session that is over."""
        with self.store.changed:
            self.readers.discard(stream)
            self._holders = {
                key: holder
                for key, holder in self._holders.items()
                if holder is not stream
            }
            self.store.changed.notify_all()

    def log_in(self, user: str, password: str) -> str:
        """Return a token for a user."""
        if self.users.get(user) != password:
            raise RefusalError(UNAUTHORIZED, "Invalid password")
        with self._lock:
            self.logins += 1
            claims = {
                "sub": user,
                "n": self.logins,
                "iat": int(time.time()),
                "exp": int(time.time()) + self._token_life_s,
            }
        parts = [{"alg": "none"}, claims]
        encoded = [
            base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=")
            for part in parts
        ]
        token = ".".join([*encoded, "signature"])
        if self.tokens is not None:
            self.tokens[token] = frozenset({"read", "write"})
        return token


_RIGHTS = {"StreamWrite": "write", "StreamRead": "read"}


def _kind(request: Any) -> str:
    try:
        return request.WhichOneof("client_message") or ""
    except (AttributeError, ValueError):
        return ""


_S = TypeVar("_S", WriteStream, ReadStream)


class _Topics(ydb_topic_v1_pb2_grpc.TopicServiceServicer):  # type: ignore[misc]
    def __init__(self, service: TopicService) -> None:
        self._service = service
        self._store = service.store

    # -- Streams --------------------------------------------------------------------

    def StreamWrite(  # noqa: N802
        self, request_iterator: Iterator[Any], context: grpc.ServicerContext
    ) -> Iterator[Any]:
        service = self._service
        make = partial(
            WriteStream,
            take_over=service.take_over,
            stage=service.transactions.stage,
        )
        streams, end = service.writers, service.leave
        return self._run("StreamWrite", request_iterator, context, make, streams, end)

    def StreamRead(  # noqa: N802
        self, request_iterator: Iterator[Any], context: grpc.ServicerContext
    ) -> Iterator[Any]:
        service = self._service
        make = partial(ReadStream, hold=service.hold)
        streams, end = service.readers, service.release
        return self._run("StreamRead", request_iterator, context, make, streams, end)

    def _run(
        self,
        method: str,
        requests: Iterator[Any],
        context: grpc.ServicerContext,
        make: Callable[..., _S],
        streams: set[_S],
        end: Callable[[_S], None],
    ) -> Iterator[Any]:
        """Yield what a stream answers; a refusal is its last answer."""
        service = self._service
        response = getattr(pb, f"{method}Message").FromServer
        try:
            headers = service.begin(method, context)
        except RefusalError as refusal:
            yield response(status=refusal.status, issues=refusal.issues)
            return
        stream = make(
            self._store,
            service.faults,
            self._logged(method, requests, headers),
            strike=service.strike(context),
            check_token=service.check_token,
        )
        streams.add(stream)
        context.add_callback(stream.inbox.leave)
        try:
            yield from stream.run()
        except RefusalError as refusal:
            yield response(status=refusal.status, issues=refusal.issues)
        except EndedError:
            return
        finally:
            end(stream)
            stream.inbox.leave()

    def _logged(
        self, method: str, requests: Iterator[Any], headers: dict[str, str]
    ) -> Iterator[Any]:
        session = self._service.next_stream()
        for request in requests:
            self._service.record(method, session, request, headers)
            yield request

    # -- Calls ------------------------------------------------------------------------

    def DescribeTopic(  # noqa: N802
        self, request: Any, context: grpc.ServicerContext
    ) -> Any:
        def describe() -> Any:
            fault = self._service.faults.take(At.DESCRIBE)
            if fault is not None:
                # Without the lock meanwhile.
                self._store.changed.wait_for(lambda: False, fault.delay_s)
                self._service.strike(context)(fault)
            topic = self._topic(request.path)
            result = pb.DescribeTopicResult(
                partitioning_settings=pb.PartitioningSettings(
                    min_active_partitions=len(topic.active)
                ),
                partitions=[
                    _description(p, with_stats=request.include_stats)
                    for p in topic.partitions.values()
                ],
                supported_codecs=pb.SupportedCodecs(codecs=topic.codecs),
                consumers=[pb.Consumer(name=name) for name in topic.consumers],
            )
            entry = getattr(result, "self")  # noqa: B009
            entry.name = topic.path.rsplit("/", 1)[1]
            entry.created_at.plan_step = topic.created
            if fault is not None and fault.acks is Acks.SHORT:
                result.partitions[-1].ClearField("partition_stats")
            if fault is not None and fault.acks is Acks.REVERSED:
                return pb.CommitOffsetResult()
            return result

        return self._call("DescribeTopic", request, context, describe)

    def DescribeConsumer(  # noqa: N802
        self, request: Any, context: grpc.ServicerContext
    ) -> Any:
        def describe() -> Any:
            topic = self._topic(request.path)
            if request.consumer not in topic.consumers:
                raise RefusalError(SCHEME_ERROR, "no such consumer")
            committed = topic.consumers[request.consumer]
            result = pb.DescribeConsumerResult(
                consumer=pb.Consumer(name=request.consumer)
            )
            for number, partition in topic.partitions.items():
                info = result.partitions.add(
                    partition_id=number, active=partition.is_active
                )
                info.partition_consumer_stats.committed_offset = committed.get(
                    number, 0
                )
            return result

        return self._call("DescribeConsumer", request, context, describe)

    def CommitOffset(  # noqa: N802
        self, request: Any, context: grpc.ServicerContext
    ) -> Any:
        def commit() -> Any:
            fault = self._service.faults.take(At.COMMIT)
            if fault is not None:
                self._service.strike(context)(fault)
            topic = self._topic(request.path)
            if request.consumer not in topic.consumers:
                raise RefusalError(BAD_REQUEST, "no such consumer")
            partition = topic.partitions.get(request.partition_id)
            if partition is None:
                raise RefusalError(SCHEME_ERROR, "no such partition")
            if request.offset > partition.end:
                raise RefusalError(BAD_REQUEST, "SET_OFFSET_ERROR_COMMIT_TO_FUTURE")
            offsets = topic.consumers[request.consumer]
            offsets[partition.number] = request.offset
            for parent in partition.parents:
                offsets[parent] = topic.partitions[parent].end
            return pb.CommitOffsetResult()

        return self._call("CommitOffset", request, context, commit)

    def CreateTopic(  # noqa: N802
        self, request: Any, context: grpc.ServicerContext
    ) -> Any:
        def create() -> Any:
            if self._store.find(request.path) is not None:
                raise RefusalError(ALREADY_EXISTS, "path exists")
            self._store.create(
                request.path,
                max(1, request.partitioning_settings.min_active_partitions),
                tuple(request.supported_codecs.codecs) or (1, 2),
                [consumer.name for consumer in request.consumers],
            )
            return pb.CreateTopicResult()

        return self._call("CreateTopic", request, context, create)

    def AlterTopic(  # noqa: N802
        self, request: Any, context: grpc.ServicerContext
    ) -> Any:
        def alter() -> Any:
            topic = self._topic(request.path)
            settings = request.alter_partitioning_settings
            wanted = settings.set_min_active_partitions
            if wanted:
                self._store.alter(topic.path, wanted)
            for consumer in request.add_consumers:
                topic.consumers[consumer.name] = {}
            return pb.AlterTopicResult()

        return self._call("AlterTopic", request, context, alter)

    def DropTopic(  # noqa: N802
        self, request: Any, context: grpc.ServicerContext
    ) -> Any:
        def drop() -> Any:
            self._store.drop(self._topic(request.path).path)
            return pb.DropTopicResult()

        return self._call("DropTopic", request, context, drop)

    def _topic(self, path: str) -> Topic:
        topic = self._store.find(path)
        if topic is None:
            raise RefusalError(SCHEME_ERROR, f"no path {path!r}")
        return topic

    def _call(
        self,
        method: str,
        request: Any,
        context: grpc.ServicerContext,
        act: Callable[[], Any],
    ) -> Any:
        response = getattr(pb, f"{method}Response")()
        try:
            headers = self._service.begin(method, context)
            self._service.record(method, 0, request, headers)
            with self._store.changed:
                result = act()
        except RefusalError as refusal:
            response.operation.CopyFrom(_refused(refusal))
        else:
            response.operation.ready = True
            response.operation.status = SUCCESS
            response.operation.result.Pack(result)
        return response


class _Discovery(ydb_discovery_v1_pb2_grpc.DiscoveryServiceServicer):  # type: ignore[misc]
    def __init__(self, service: TopicService) -> None:
        self._service = service

    def ListEndpoints(  # noqa: N802
        self, request: Any, context: grpc.ServicerContext
    ) -> Any:
        response = ydb_discovery_pb2.ListEndpointsResponse()
        try:
            headers = self._service.begin("ListEndpoints", context)
            self._service.record("ListEndpoints", 0, request, headers)
        except RefusalError as refusal:
            response.operation.CopyFrom(_refused(refusal))
            return response
        response.operation.ready = True
        response.operation.status = SUCCESS
        response.operation.result.Pack(
            ydb_discovery_pb2.ListEndpointsResult(
                endpoints=[
                    ydb_discovery_pb2.EndpointInfo(
                        address="localhost",
                        port=self._service.port,
                        ssl=self._service.endpoint.startswith("grpcs:"),
                        node_id=1,
                    )
                ]
            )
        )
        return response


class _Auth(ydb_auth_v1_pb2_grpc.AuthServiceServicer):  # type: ignore[misc]
    def __init__(self, service: TopicService) -> None:
        self._service = service

    def Login(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802
        response = ydb_auth_pb2.LoginResponse()
        try:
            token = self._service.log_in(request.user, request.password)
        except RefusalError as refusal:
            response.operation.CopyFrom(_refused(refusal))
            return response
        response.operation.ready = True
        response.operation.status = SUCCESS
        response.operation.result.Pack(ydb_auth_pb2.LoginResult(token=token))
        return response


def _refused(refusal: RefusalError) -> Any:
    operation = ydb_operation_pb2.Operation(ready=True, issues=refusal.issues)
    operation.status = refusal.status
    return operation


def _description(partition: Partition, *, with_stats: bool) -> Any:
    info = pb.DescribeTopicResult.PartitionInfo(
        partition_id=partition.number,
        active=partition.is_active,
        child_partition_ids=partition.children,
        parent_partition_ids=partition.parents,
    )
    low, high = partition.bounds
    if low:
        info.key_range.from_bound = low
    if high:
        info.key_range.to_bound = high
    if with_stats:
        stats = info.partition_stats
        stats.partition_offsets.start = partition.start
        stats.partition_offsets.end = partition.end
        stats.store_size_bytes = sum(len(m.data) for m in partition.messages)
    return info
