# SPDX-License-Identifier: Apache-2.0
"""A connection to a master or a broker, and its reading thread.

Any number of calls may be under way. Each has its own deadline: a server that
cannot read a request, or finds it too old, answers by silence. So does one that is
gone without a word, or has become deaf for the rest of the connection: after a call
that no one answered, while nothing else was heard, no other call is made on it.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent import futures
from typing import Any, Generic

from spark_topics.client.buffers import BufferPool
from spark_topics.client.reached import note_reached
from spark_topics.client.transport import Transport
from tubemq_spark.client import refusals
from tubemq_spark.client.tls import explained, open_server
from tubemq_spark.errors import (
    CallTimeoutError,
    ProtocolError,
    TransportError,
    TubeMQError,
)
from tubemq_spark.loops.chunks import BUFFER_BYTES
from tubemq_spark.options.tls import TlsOptions
from tubemq_spark.wire import codes
from tubemq_spark.wire.messages import ReplyT, Request
from tubemq_spark.wire.protocol import ClientProtocol, Reply

#: What is read at a time.
_READ_BYTES = 256 * 1024

#: How often the reading thread looks at the clock, in seconds.
_TICK_S = 0.5

#: What a reply may need beyond the time that the server is given, in seconds.
_GRACE_S = 0.5


#: What replies are joined in.
_buffers = BufferPool(BUFFER_BYTES)
os.register_at_fork(after_in_child=_buffers.start_anew)


class Call(futures.Future[ReplyT], Generic[ReplyT]):
    """A request in flight; ends in a reply with any code, or in an error.

    Attributes:
        request: What was asked.
        timeout_s: How long it is waited for, in seconds.
    """

    def __init__(self, request: Request[ReplyT], timeout_s: float) -> None:
        super().__init__()
        self.request = request
        self.timeout_s = timeout_s


class Connection:
    """A connection that many threads may call on.

    Args:
        transport: To the server; closed with the connection.
        server: ``host:port``, for messages.
        timeout_s: How long a server may take for a call, in seconds.
        explain: Of a connection without TLS, says why it ended, given the error and the
            first bytes, if that was before a whole frame was heard.

    Attributes:
        server: As given.
    """

    def __init__(
        self,
        transport: Transport,
        server: str,
        timeout_s: float,
        explain: Callable[[TubeMQError, bytes], TubeMQError] | None = None,
    ) -> None:
        self.server = server
        self._explain = explain
        self._transport = transport
        self._timeout_s = timeout_s
        self._protocol = ClientProtocol(new_buffer=_buffers.take)
        self._calls: dict[int, Call[Any]] = {}
        self._lock = threading.Lock()  # guards requests, calls and error
        self._send_lock = threading.Lock()  # frames must not interleave
        self._error: TubeMQError | None = None
        self._silence: CallTimeoutError | None = None  # as the last thing heard
        self._heard_at = time.monotonic()  # a whole frame
        self._begin = b""  # the first bytes that came
        self._sending_since: float | None = None
        self._thread = threading.Thread(
            target=self._run, name=f"tubemq-{server}", daemon=True
        )
        self._thread.start()

    def __repr__(self) -> str:
        return f"Connection({self.server!r})"

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def is_open(self) -> bool:
        """Return whether calls can still be made, and are likely to be answered."""
        return self._error is None and self._silence is None

    def call_all(self, requests: Sequence[Request[Any]]) -> list[Call[Any]]:
        """Send requests together and return their calls, in order.

        One that cannot be sent ends in the error, which is not raised here.
        """
        deadline = time.monotonic() + self._timeout_s + _GRACE_S
        timeout_ms = max(1, round(self._timeout_s * 1000))
        calls = [Call(request, self._timeout_s) for request in requests]
        frames = []
        with self._send_lock:
            with self._lock:
                error = self._error
                for call in calls if error is None else ():
                    serial, frame = self._protocol.request(
                        call.request, timeout_ms, deadline
                    )
                    self._calls[serial] = call
                    frames.append(frame)
            if error is not None:
                for call in calls:
                    call.set_exception(copy.copy(error))
                return calls
            self._sending_since = time.monotonic()
            try:
                self._transport.send(b"".join(frames))
            except TubeMQError as failure:
                self._fail(self._explained(failure))
            except BaseException:  # half a frame may be out: nothing can follow it
                self._fail(self._interrupted())
                raise
            finally:
                self._sending_since = None
        return calls

    def call(self, request: Request[ReplyT]) -> Call[ReplyT]:
        """Send a request and return its call."""
        return self.call_all([request])[0]

    def reply(self, call: Call[ReplyT]) -> ReplyT:
        """Return the reply to a call, with any code.

        Raises:
            CallTimeoutError: None came in time.
            ServerError: The server threw an exception.
            TransportError: The connection broke.
            ProtocolError: What came is no reply.
        """
        # The reading thread ends each in time; this is for one that died.
        limit_s = call.timeout_s + _GRACE_S + 10 * _TICK_S
        try:
            return call.result(limit_s)
        except futures.TimeoutError:
            raise self._timed_out(call) from None

    def ask(
        self,
        request: Request[ReplyT],
        *,
        subject: str = "",
        accepting: frozenset[int] = frozenset(),
    ) -> ReplyT:
        """Send a request and return the reply.

        Args:
            request: What to ask.
            subject: The subject, for messages.
            accepting: Codes to return as well as that of success.

        Raises:
            ServerError: Another code, or an exception.
            TransportError: As `reply`, as for its others.
        """
        body = self.reply(self.call(request))
        self.check(body, request, subject=subject, accepting=accepting)
        return body

    def check(
        self,
        body: Any,
        request: Request[Any],
        *,
        subject: str = "",
        accepting: frozenset[int] = frozenset(),
    ) -> None:
        """Raise the error for a reply's code, except for success. As `ask`."""
        if body.errCode != codes.SUCCESS and body.errCode not in accepting:
            raise refusals.refusal(
                body.errCode,
                body.errMsg,
                call=request.name,
                server=self.server,
                subject=subject,
            )

    def give_up(self, error: ProtocolError) -> TubeMQError:
        """End the connection over a malformed reply; return the error to raise."""
        told_error = error.about(f"From {self.server}")
        self._fail(told_error)
        return told_error

    def close(self) -> None:
        """End the connection; calls under way end in an error."""
        self._fail(
            TransportError(
                f"The connection to {self.server} was closed on this side.",
                broker=self.server,
            )
        )
        if threading.current_thread() is not self._thread:
            self._thread.join(10 * _TICK_S)

    def forget_parent(self) -> None:
        """Free the socket in a forked child; the connection stays the parent's."""
        self._transport.close()

    # -- the reading thread ------------------------------------------------------------

    def _run(self) -> None:
        buffer = memoryview(bytearray(_READ_BYTES))
        try:
            while self._error is None:
                size = self._transport.receive(buffer, _TICK_S)
                if size:
                    self._begin = self._begin or bytes(buffer[:2])
                    self._hear(buffer[:size])
                self._expire(time.monotonic())
        except TubeMQError as error:
            self._fail(self._explained(error))
        except BaseException as error:
            self._fail(ProtocolError(f"Reading from {self.server} failed: {error!r}"))
            raise
        finally:
            self._transport.close()

    def _explained(self, error: TubeMQError) -> TubeMQError:
        """Return the reason for the end; without any reply, perhaps a wrong port."""
        if self._explain is None or self._protocol.frames or not self.is_open:
            return error
        return self._explain(error, self._begin)

    def _hear(self, data: memoryview) -> None:
        endings: list[Callable[[], None]] = []
        frames = self._protocol.frames
        try:
            # Not under the lock: large replies take long, and who calls meanwhile only
            # adds to what is waited for.
            for event in self._protocol.receive_data(data):
                with self._lock:
                    call = self._calls.pop(event.serial, None)
                if call is not None:  # else the connection has ended meanwhile
                    endings.append(_ending(call, event, self.server))
        except ProtocolError as error:
            raise error.about(f"From {self.server}") from None
        finally:
            if self._protocol.frames > frames:
                self._heard_at = time.monotonic()
                if self._explain and not frames:
                    note_reached(self.server, by_tls=False)
            # Outside of the lock: who waits may call again.
            for end in endings:
                end()

    def _expire(self, now: float) -> None:
        """Fail calls past their deadline, and a connection that answers nothing."""
        is_silent = now - self._heard_at >= self._timeout_s + _GRACE_S
        with self._lock:
            late = self._protocol.expired(now)
            calls = [self._calls.pop(serial, None) for serial in late]
            for call in filter(None, calls):
                error = self._timed_out(call)
                if is_silent and self._silence is None:
                    self._silence = error  # first: who is told looks whether it is open
                call.set_exception(error)
            is_over = self._silence is not None and not self._calls
        if is_over:
            assert self._silence is not None
            self._fail(self._silence)
        if is_silent and self._is_stuck(now):
            self._fail(
                TransportError(
                    f"The server {self.server} has taken nothing of what is sent to it "
                    f"for {self._timeout_s:g} s. Look at its log, or raise "
                    "`rpc.timeout`.",
                    broker=self.server,
                )
            )

    def _is_stuck(self, now: float) -> bool:
        since = self._sending_since
        return since is not None and now - since >= self._timeout_s + _GRACE_S

    def _timed_out(self, call: Call[Any]) -> CallTimeoutError:
        name = call.request.name
        return CallTimeoutError(
            f"The server {self.server} did not answer the {name} within "
            f"{call.timeout_s:g} s; {len(self._calls)} other calls wait. Look at its "
            "log, or raise `rpc.timeout`.",
            broker=self.server,
            call=name,
        )

    def _interrupted(self) -> TransportError:
        return TransportError(
            f"The connection to {self.server} was interrupted while it sent.",
            broker=self.server,
        )

    def _fail(self, error: TubeMQError) -> None:
        """End the connection once; everything that waits learns why."""
        with self._lock:
            if self._error is not None:
                return
            self._error = error
            calls = list(self._calls.values())
            self._calls.clear()
        self._transport.shutdown()  # the reading thread comes back, and closes it
        for call in calls:
            with contextlib.suppress(futures.InvalidStateError):
                call.set_exception(copy.copy(error))


def _ending(call: Call[Any], event: Any, server: str) -> Callable[[], None]:
    if isinstance(event, Reply):
        return lambda: call.set_result(event.body)
    error = refusals.exception(event.failure, call=call.request.name, server=server)
    return lambda: call.set_exception(error)


def connect(
    server: str,
    *,
    connect_timeout_s: float,
    timeout_s: float,
    tls: TlsOptions | None = None,
) -> Connection:
    """Open a connection.

    Args:
        server: ``host:port``.
        connect_timeout_s: Longest wait for it, in seconds; as long again for TLS.
        timeout_s: How long the server may take for each call.
        tls: How it is made safe; None, or not enabled, for not at all.

    Raises:
        TransportError: No one can be reached there in time.
        TlsError: It cannot be made safe.
    """
    transport = open_server(server, connect_timeout_s, tls)
    if tls is not None and tls.enable:
        return Connection(transport, server, timeout_s)
    explain = functools.partial(explained, server=server, timeout_s=connect_timeout_s)
    return Connection(transport, server, timeout_s, explain)
