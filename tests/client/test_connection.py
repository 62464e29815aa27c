# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import http.server
import queue
import re
import socket
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from pulsar_spark.client import connection as module
from pulsar_spark.client.connect import connect
from pulsar_spark.client.connection import Connection, new_producer_id
from pulsar_spark.client.pending import Pending, await_ends
from pulsar_spark.client.pool import BrokerAddress, ConnectionPool
from pulsar_spark.errors import (
    AuthError,
    BrokerError,
    OptionError,
    ProtocolError,
    PulsarSparkError,
    TopicMigratedError,
    TopicNotFoundError,
    TransportError,
)
from pulsar_spark.loops.sends import Receipt
from pulsar_spark.options import ClientOptions, ServiceUrl
from pulsar_spark.wire import commands
from pulsar_spark.wire import pulsar_api_pb2 as pb
from pulsar_spark.wire.commands import Request, SubscribeRequest
from pulsar_spark.wire.frames import encode_frame
from pulsar_spark.wire.outgoing import EntryEncoder
from pulsar_spark.wire.protocol import DONE, ClientProtocol, Delivery, SendRefused
from tests.support import patience
from tests.support.scripted_broker import (
    ScriptedBroker,
    client_options,
    cut,
    garbage,
    late,
    migrated,
    numbered,
    refuse,
    refuse_entry,
    silence,
    usual,
)
from tests.support.waiting import join, wait_until
from tests.wire import builders

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.fixtures import Clock

TOPIC = "persistent://public/default/t"
LOOKUP = commands.lookup(TOPIC)


class Box:
    """An inbox that keeps everything."""

    def __init__(self) -> None:
        self.deliveries: list[Delivery] = []
        self.endings: list[PulsarSparkError | None] = []
        self.is_delivering = threading.Event()
        self.may_deliver = threading.Event()
        self.may_deliver.set()

    def deliver(self, deliveries: Sequence[Delivery]) -> None:
        """Takes them once it may."""
        self.is_delivering.set()
        assert self.may_deliver.wait(60)
        self.deliveries.extend(deliveries)

    def closed(self, error: PulsarSparkError | None) -> None:
        """Keeps why."""
        self.endings.append(error)


class FaultyBox(Box):
    """An inbox with a mistake in it."""

    def deliver(self, deliveries: Sequence[Delivery]) -> None:
        """Fails."""
        raise RuntimeError("a bug\nof ours")


@pytest.fixture
def connection(scripted: ScriptedBroker) -> Iterator[Connection]:
    """A connection to the scripted broker."""
    one = connect(scripted.address, client_options(scripted.address))
    yield one
    one.close()


def dial(
    scripted: ScriptedBroker, credentials: Any = None, **options: Any
) -> Connection:
    """Connects to the scripted broker."""
    given = client_options(**options)
    return connect(scripted.address, given, credentials=credentials)


def receipt_of(producer_id: int, number: int = 0) -> pb.CommandSendReceipt:
    """What tells a producer that an entry is stored."""
    place = pb.MessageIdData(ledgerId=7, entryId=number)
    return pb.CommandSendReceipt(
        producer_id=producer_id, sequence_id=number, message_id=place
    )


def send_receipt(session: Any, producer_id: int) -> None:
    """Says to a producer that its first entry is stored."""
    receipt = receipt_of(producer_id)
    session.send(type=pb.BaseCommand.SEND_RECEIPT, send_receipt=receipt)


def outcome(request: Pending[Any]) -> Any:
    """The reply to a request, or its error."""
    assert not await_ends([request], 60)
    return request.outcome()


def subscribe(connection: Connection, box: Box, permits: int) -> int:
    """Makes a consumer with an inbox; returns its id."""
    consumer_id = connection.attach(box)
    earliest = commands.InitialPosition.EARLIEST
    how = commands.SubscribeRequest("s", initial_position=earliest)
    connection.ask(commands.subscribe(TOPIC, consumer_id, how), 60)
    if permits:
        connection.grant(consumer_id, permits)
    return consumer_id


class TestHandshake:
    def test_it_tells_who_the_broker_is(self, scripted: ScriptedBroker) -> None:
        """What CONNECTED says is there once the connection is."""
        scripted.max_message_size = 1000
        connection = connect(scripted.address, client_options(scripted.address))
        assert connection.server_version == "Scripted 1.0"
        assert connection.max_message_size_bytes == 1000
        assert connection.is_open
        assert not scripted.bodies["CONNECT"][0].HasField("proxy_to_broker_url")
        connection.close()

    def test_a_proxy_is_told_whom_to_connect_to(self, scripted: ScriptedBroker) -> None:
        """CONNECT carries the broker's address without a scheme."""
        connection = connect(
            scripted.address, client_options(), proxied_broker="broker-1:6650"
        )
        assert scripted.bodies["CONNECT"][0].proxy_to_broker_url == "broker-1:6650"
        assert connection.broker == "broker-1:6650"
        connection.close()

    @pytest.mark.parametrize(
        ("code", "kind", "retriable"),
        [
            ("AuthenticationError", AuthError, False),
            ("AuthorizationError", AuthError, False),
            ("NotAllowedError", BrokerError, False),
            ("ServiceNotReady", BrokerError, True),
        ],
    )
    def test_a_refusal_has_its_code(
        self,
        scripted: ScriptedBroker,
        code: str,
        kind: type[BrokerError],
        retriable: bool,
    ) -> None:
        """The broker's own words and code come through."""
        scripted.script("CONNECT", refuse(code, "no thanks"))
        with pytest.raises(kind, match="no thanks") as caught:
            dial(scripted)
        assert caught.value.code == code
        assert caught.value.retriable is retriable
        assert scripted.address in str(caught.value)

    @pytest.mark.parametrize(
        ("answer", "text"),
        [
            (b"HTTP/1.1 400 Bad Request\r\n\r\n", "HTTP server"),
            (b"<html></html>", "HTTP server"),
            (b"\x15\x03\x01\x00\x02\x02\x46", "TLS server"),
            (b"SSH-2.0-OpenSSH_9.6\r\n", "larger than"),
            (b"\0\0\0\5\0\0\0\1\xff", "cannot be decoded"),
        ],
    )
    def test_what_is_not_pulsar_is_told_apart(
        self, scripted: ScriptedBroker, answer: bytes, text: str
    ) -> None:
        """Other protocols give one final error that names the broker."""
        scripted.script("CONNECT", garbage(answer))
        with pytest.raises(ProtocolError, match=text) as caught:
            dial(scripted)
        assert scripted.address in str(caught.value)
        assert not caught.value.retriable

    def test_a_real_http_server(self) -> None:
        """The error says that this is not the binary port, and which one usually is."""
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _QuietHandler)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            with pytest.raises(PulsarSparkError, match="6650"):
                connect(f"127.0.0.1:{server.server_port}", client_options())
        finally:
            server.shutdown()
            server.server_close()
            join(thread, "the web server")

    def test_a_server_that_only_closes(self, scripted: ScriptedBroker) -> None:
        """The error asks whether this is the right port."""
        scripted.script("CONNECT", cut)
        with pytest.raises(TransportError, match="binary port"):
            dial(scripted)

    def test_a_silent_server(self, scripted: ScriptedBroker) -> None:
        """The handshake has a limit of its own."""
        scripted.script("CONNECT", silence)
        options = client_options(connection_timeout_s=0.1)
        with pytest.raises(TransportError, match=r"CONNECT within 0\.1 s.*6650"):
            connect(scripted.address, options)

    def test_a_late_answer_changes_nothing(self, scripted: ScriptedBroker) -> None:
        """CONNECTED after the time is up meets nobody, and breaks nothing."""
        answer = threading.Event()
        scripted.script("CONNECT", late(answer))
        with pytest.raises(TransportError, match="CONNECT"):
            dial(scripted, connection_timeout_s=0.05)
        answer.set()

    def test_an_interrupt_leaves_no_thread(
        self, scripted: ScriptedBroker, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Ctrl-C in the handshake ends the connection, too."""

        def interrupt(*_: object) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(Connection, "wait", interrupt)
        with pytest.raises(KeyboardInterrupt):
            dial(scripted)
        wait_until(lambda: not scripted.sessions)

    def test_a_challenge_is_an_auth_error(self, scripted: ScriptedBroker) -> None:
        """Where there is nothing to answer with, the error names what is asked for."""
        scripted.script("CONNECT", lambda _, session, __: challenge(session))
        text = "asks for token authentication, but the credentials are for none"
        with pytest.raises(AuthError, match=text):
            dial(scripted)


class Keys:
    """A provider of credentials that are numbered."""

    method = "token"
    advice = "Look at the keys."

    def __init__(self) -> None:
        self.given = 0
        self.refusals: list[bytes] = []
        self.challenges: list[bytes] = []

    def data(self) -> bytes:
        """Give the next one."""
        self.given += 1
        return f"secret-{self.given}".encode()

    def answer(self, challenge: bytes) -> bytes:
        """Give an answer that shows what was asked."""
        self.challenges.append(challenge)
        return b"answer to " + challenge

    def refused(self, data: bytes) -> None:
        """Note it."""
        self.refusals.append(data)

    def role(self) -> str:
        """Name the one who has them."""
        return "keeper"


class FaultyKeys(Keys):
    """A provider with a mistake in it."""

    def data(self) -> bytes:
        """Fail, and blurt the secret out."""
        raise RuntimeError("secret-1")


def challenge(session: Any, method: str = "token", data: bytes = b"?") -> None:
    """Ask a client who it is."""
    asked = pb.CommandAuthChallenge(
        server_version="s",
        challenge=pb.AuthData(auth_method_name=method, auth_data=data),
    )
    session.send(type=pb.BaseCommand.AUTH_CHALLENGE, authChallenge=asked)


class TestCredentials:
    def test_nothing_is_sent_where_there_are_none(
        self, scripted: ScriptedBroker
    ) -> None:
        """CONNECT says so."""
        dial(scripted).close()
        (body,) = scripted.bodies["CONNECT"]
        assert body.auth_method_name == "none"
        assert not body.HasField("auth_data")

    def test_each_connection_asks_once(self, scripted: ScriptedBroker) -> None:
        """And so has a credential that is fresh, which is shown nowhere."""
        keys = Keys()
        for number in (1, 2):
            with dial(scripted, keys) as connection:
                connection.ask(LOOKUP, 60)
                assert "secret" not in repr(connection)
            assert keys.given == number
        sent = [(b.auth_method_name, b.auth_data) for b in scripted.bodies["CONNECT"]]
        assert sent == [("token", b"secret-1"), ("token", b"secret-2")]
        assert keys.challenges == []

    def test_a_pool_gives_them_to_its_connections(
        self, scripted: ScriptedBroker
    ) -> None:
        """To each that it opens."""
        keys = Keys()
        with ConnectionPool(client_options(scripted.address), keys) as pool:
            pool.service()
            pool.get(BrokerAddress(scripted.address, "b:1"))
            assert "secret" not in repr(pool)
        assert keys.given == 2
        assert [b.auth_data for b in scripted.bodies["CONNECT"]] == [
            b"secret-1",
            b"secret-2",
        ]

    @pytest.mark.parametrize("method", ["token", ""])
    def test_a_challenge_is_answered_in_between(
        self, scripted: ScriptedBroker, method: str
    ) -> None:
        """What waits goes on, and the connection with it."""
        keys = Keys()
        with dial(scripted, keys) as connection:
            later = threading.Event()
            scripted.script("LOOKUP", late(later))
            pending = connection.request(LOOKUP)
            (session,) = scripted.sessions
            challenge(session, method, commands.AUTH_REFRESH_CHALLENGE)
            wait_until(lambda: scripted.requests["AUTH_RESPONSE"])
            later.set()
            assert not isinstance(outcome(pending), PulsarSparkError)
            assert connection.is_open
        (body,) = scripted.bodies["AUTH_RESPONSE"]
        assert body.response.auth_method_name == "token"
        assert body.response.auth_data == b"answer to PulsarAuthRefresh"
        assert body.client_version == scripted.bodies["CONNECT"][0].client_version
        assert keys.given == 1

    def test_a_challenge_in_the_handshake(self, scripted: ScriptedBroker) -> None:
        """CONNECTED comes after its answer."""
        keys = Keys()
        scripted.script("CONNECT", lambda _, session, __: challenge(session))
        scripted.script(
            "AUTH_RESPONSE",
            lambda _, session, __: session.send_bytes(builders.connected(1000, "S 1")),
        )
        with dial(scripted, keys) as connection:
            assert connection.server_version == "S 1"
        assert keys.challenges == [b"?"]

    def test_a_challenge_of_another_method(self, scripted: ScriptedBroker) -> None:
        """Both are named."""
        scripted.always(
            "CONNECT", lambda _, session, __: challenge(session, "athenz\n")
        )
        with pytest.raises(AuthError, match=r"athenz\\n auth.*are for token"):
            dial(scripted, Keys())

    @pytest.mark.parametrize(
        ("credential", "said", "shown"),
        [
            (
                "header.payload.sign-nature",
                "Bad sign-nature in X.",
                "Bad <secret> in X.",
            ),
            (
                "abc.cGF5bG9hZA.x",
                "Unable to read JSON value: payload",
                "value: <secret>",
            ),
            ("a.b.c", "Unable to read JSON value: ab", "JSON value: ab"),
            ("ann:pass:word", "ann has not pass:word", "ann has not <secret>"),
            ("ann:pass:word", "no ann:pass:word", "no <secret>"),
        ],
    )
    def test_a_broker_that_repeats_the_credential(
        self, scripted: ScriptedBroker, credential: str, said: str, shown: str
    ) -> None:
        """The error does not, nor what of a token the broker has decoded."""

        class Constant(Keys):
            def data(self) -> bytes:
                return credential.encode()

        scripted.always("CONNECT", refuse("AuthenticationError", said))
        with pytest.raises(AuthError) as caught:
            dial(scripted, Constant())
        assert shown in caught.value.message
        assert shown in caught.value.server_message

    @pytest.mark.parametrize("said", ["{}", "pulsar://{}:6650", "a\n{}.b"])
    def test_a_broker_that_repeats_the_credential_anywhere(
        self, scripted: ScriptedBroker, said: str
    ) -> None:
        """No text of any command has it, wherever the text goes."""
        keys = Keys()
        text = said.format("secret-1")
        scripted.server_version = text
        scripted.script("SUBSCRIBE", migrated(text, text))
        scripted.script("LOOKUP", refuse("MetadataError", text))
        with dial(scripted, keys) as connection:
            subscription = commands.subscribe(
                "t", connection.attach(Box()), SubscribeRequest("s")
            )
            errors = [
                outcome(connection.request(one)) for one in (subscription, LOOKUP)
            ]
            (session,) = scripted.sessions
            challenge(session, text)
            wait_until(lambda: not connection.is_open)
            errors.append(outcome(connection.request(LOOKUP)))
            told = [connection.server_version, *(vars(one) for one in errors)]
        assert [type(one) for one in errors] == [
            TopicMigratedError,
            BrokerError,
            AuthError,
        ]
        assert all("<secret>" in str(one) for one in told)
        assert "secret-1" not in str(told)

    @pytest.mark.parametrize("word", ["token", "pulsar"])
    def test_a_credential_that_is_a_word_of_the_protocol(
        self, scripted: ScriptedBroker, word: str
    ) -> None:
        """As in trials: challenges are answered, and addresses are addresses."""

        class Word(Keys):
            def data(self) -> bytes:
                return f"ann:{word}".encode()

        scripted.script("SUBSCRIBE", migrated("pulsar://green:6650"))
        with dial(scripted, Word()) as connection:
            (session,) = scripted.sessions
            challenge(session)
            wait_until(lambda: "AUTH_RESPONSE" in scripted.requests)
            subscription = commands.subscribe(
                "t", connection.attach(Box()), SubscribeRequest("s")
            )
            error = outcome(connection.request(subscription))
        assert isinstance(error, TopicMigratedError)
        assert error.service_url == "pulsar://green:6650"

    def test_a_broker_that_repeats_the_credential_before(
        self, scripted: ScriptedBroker
    ) -> None:
        """It has not looked at the fresh one yet, and the other may still be good."""

        class Renewed(Keys):
            def data(self) -> bytes:
                return b"the-first"

            def answer(self, challenge: bytes) -> bytes:
                return b"the-second"

        said = "neither the-first nor the-second"
        scripted.always("LOOKUP", refuse("AuthorizationError", said))
        with dial(scripted, Renewed()) as connection:
            (session,) = scripted.sessions
            challenge(session)
            wait_until(lambda: "AUTH_RESPONSE" in scripted.requests)
            error = outcome(connection.request(LOOKUP))
        assert isinstance(error, AuthError)
        assert "neither <secret> nor <secret>" in error.message

    def test_a_broker_that_cannot_find_out(self, scripted: ScriptedBroker) -> None:
        """That is no refusal: it is asked again, and no permission is missing."""
        said = "Exception occurred while trying to authorize lookup"
        scripted.script("LOOKUP", refuse("AuthorizationError", said))
        scripted.script("LOOKUP", refuse("AuthorizationError", "Not authorized"))
        with dial(scripted, Keys()) as connection:
            errors = []
            for _ in range(2):
                with pytest.raises(AuthError) as caught:
                    connection.ask(commands.lookup("persistent://a/b/t"), 60)
                errors.append(caught.value)
        assert [error.retriable for error in errors] == [True, False]
        assert ["grant-permission" in e.message for e in errors] == [False, True]

    def test_a_provider_that_fails_at_first(self, scripted: ScriptedBroker) -> None:
        """Nothing is sent, and its words are not repeated."""
        with pytest.raises(AuthError, match="RuntimeError") as caught:
            dial(scripted, FaultyKeys())
        assert "secret" not in str(caught.value)
        assert not scripted.requests

    def test_a_provider_that_fails_in_between(
        self, scripted: ScriptedBroker, caplog: pytest.LogCaptureFixture
    ) -> None:
        """The connection ends; no log repeats its words either."""

        class Later(Keys):
            def answer(self, challenge: bytes) -> bytes:
                raise RuntimeError("secret-1")

        caplog.set_level("DEBUG", "pulsar_spark")
        with dial(scripted, Later()) as connection:
            (session,) = scripted.sessions
            challenge(session)
            wait_until(lambda: not connection.is_open)
            error = outcome(connection.request(LOOKUP))
        assert isinstance(error, AuthError)
        assert "could not be obtained: RuntimeError" in error.message
        assert "secret" not in f"{error} {caplog.text}"

    def test_an_answer_that_is_long_in_coming(self, scripted: ScriptedBroker) -> None:
        """Meanwhile everything else goes on; further challenges wait for the same."""
        go = threading.Event()

        class Slow(Keys):
            def answer(self, challenge: bytes) -> bytes:
                go.wait(60)
                return super().answer(challenge)

        keys = Slow()
        with dial(scripted, keys) as connection:
            (session,) = scripted.sessions
            for _ in range(3):
                challenge(session)
            assert connection.ask(LOOKUP, 60)
            assert keys.challenges == []
            go.set()
            wait_until(lambda: scripted.requests["AUTH_RESPONSE"])
            assert keys.challenges == [b"?"]
            challenge(session, data=b"again")
            wait_until(lambda: len(scripted.bodies["AUTH_RESPONSE"]) == 2)
            assert connection.is_open
        assert keys.challenges == [b"?", b"again"]

    def test_a_broker_that_asks_and_does_not_read(
        self, scripted: ScriptedBroker
    ) -> None:
        """A few answers wait for it, and no more are had, however often it asks."""
        keys = Keys()
        with dial(scripted, keys) as connection:
            (session,) = scripted.sessions
            with connection._send_lock:  # a frame is going out, slowly
                for count in range(1, module._ANSWERS_KEPT + 1):
                    challenge(session)
                    wait_until(lambda: len(connection._answers) == count)  # noqa: B023
                for _ in range(20):
                    challenge(session)
                challenge(session, method="other")  # an error: all before was read
                wait_until(lambda: not connection.is_open)
                assert len(keys.challenges) == module._ANSWERS_KEPT

    def test_an_answer_that_does_not_come(self, scripted: ScriptedBroker) -> None:
        """The connection ends in time, by an error that says so."""
        go = threading.Event()

        class Hanging(Keys):
            def answer(self, challenge: bytes) -> bytes:
                go.wait(60)
                return b""

        options = client_options(operation_timeout_s=0.1)
        with connect(scripted.address, options, credentials=Hanging()) as connection:
            (session,) = scripted.sessions
            challenge(session)
            wait_until(lambda: not connection.is_open)
            error = outcome(connection.request(LOOKUP))
        go.set()
        assert isinstance(error, AuthError)
        assert "did not come within 0.1 s" in error.message

    def test_one_that_hangs_at_first(self, scripted: ScriptedBroker) -> None:
        """Nothing is opened."""
        go = threading.Event()

        class Hanging(Keys):
            def data(self) -> bytes:
                go.wait(60)
                return b""

        options = client_options(operation_timeout_s=0.1)
        with pytest.raises(AuthError, match=r"did not come within 0\.1 s"):
            connect(scripted.address, options, credentials=Hanging())
        go.set()
        assert scripted.connections == 0

    def test_a_credential_that_was_renewed_meanwhile(
        self, scripted: ScriptedBroker
    ) -> None:
        """Of one that is refused there may be a fresh one: it is tried, once."""
        scripted.script("CONNECT", refuse("AuthenticationError", "too old"))
        keys = Keys()
        dial(scripted, keys).close()
        sent = [body.auth_data for body in scripted.bodies["CONNECT"]]
        assert sent == [b"secret-1", b"secret-2"]
        assert keys.refusals == [b"secret-1"]
        scripted.always("CONNECT", refuse("AuthenticationError", "too old"))
        with pytest.raises(AuthError, match=r"too old\. It did not accept the method"):
            dial(scripted, keys)
        assert len(scripted.bodies["CONNECT"]) == 4

    def test_a_credential_that_stays_the_same(self, scripted: ScriptedBroker) -> None:
        """It is not sent twice, and not tried again later."""

        class Constant(Keys):
            def data(self) -> bytes:
                return b"secret"

        scripted.always("CONNECT", refuse("AuthenticationError", "no"))
        with pytest.raises(AuthError, match="Look at the keys") as caught:
            dial(scripted, Constant())
        assert len(scripted.bodies["CONNECT"]) == 1
        assert not caught.value.retriable

    def test_a_role_that_may_not_connect(self, scripted: ScriptedBroker) -> None:
        """No other credential would help."""
        scripted.script("CONNECT", refuse("AuthorizationError", "no"))
        with pytest.raises(AuthError, match="The role 'keeper' is not allowed this"):
            dial(scripted, Keys())
        assert len(scripted.bodies["CONNECT"]) == 1

    def test_an_answer_that_is_refused(self, scripted: ScriptedBroker) -> None:
        """The connection is over; another one may have a better credential."""
        refused = pb.CommandError(request_id=(1 << 64) - 1, error=3, message="Failed")
        scripted.script(
            "AUTH_RESPONSE",
            lambda _, session, __: session.send(
                type=pb.BaseCommand.ERROR, error=refused
            ),
        )
        with dial(scripted, Keys()) as connection:
            (session,) = scripted.sessions
            challenge(session)
            wait_until(lambda: not connection.is_open)
            error = outcome(connection.request(LOOKUP))
        assert isinstance(error, AuthError)
        assert error.retriable

    def test_what_a_role_lacks(self, scripted: ScriptedBroker) -> None:
        """The request says what is missing, and on which topic."""
        scripted.script("LOOKUP", refuse("AuthorizationError", "no"))
        with dial(scripted, Keys()) as connection:
            pending = connection.request(LOOKUP)
            connection_error = outcome(pending)
        assert isinstance(connection_error, AuthError)
        message = connection_error.message
        assert "The role 'keeper' lacks both consume and produce" in message
        assert "pulsar-admin namespaces grant-permission" in message

    def test_an_error_of_ours_is_passed_on(self, scripted: ScriptedBroker) -> None:
        """Who provides credentials may say what helps."""

        class Rotten(Keys):
            def data(self) -> bytes:
                raise OptionError("The file of the token is empty.")

        with pytest.raises(OptionError, match="file of the token"):
            dial(scripted, Rotten())


class _QuietHandler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


class Memory:
    """A transport without a socket: what is sent is kept, what is fed is received.

    Attributes:
        sent: All that was sent.
        is_closed: Whether it was freed.
    """

    def __init__(self) -> None:
        self.sent = b""
        self.is_closed = False
        self._fed: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def feed(self, data: bytes) -> None:
        """Let this be received."""
        self._fed.put(data)

    def send(self, data: bytes) -> None:
        """Keep it."""
        self.sent += data

    def receive(self, buffer: memoryview, timeout_s: float) -> int:
        """Take what was fed; an empty piece is the end."""
        try:
            data = self._fed.get(timeout=timeout_s)
        except queue.Empty:
            return 0
        if not data:
            raise TransportError("The other side is gone.")
        buffer[: len(data)] = data
        return len(data)

    def shutdown(self) -> None:
        """End it."""
        self.feed(b"")

    def close(self) -> None:
        """Note it."""
        self.is_closed = True


class TestWithoutASocket:
    """What a connection does with any transport and a protocol."""

    @pytest.fixture
    def memory(self) -> Memory:
        """A transport."""
        return Memory()

    @pytest.fixture
    def connection(self, memory: Memory) -> Iterator[Connection]:
        """A connection that was not started."""
        protocol = ClientProtocol(commands.connect("v"))
        one = Connection(memory, protocol, broker="b:1", keep_alive_s=30)
        yield one
        one.close()
        wait_until(lambda: memory.is_closed)

    def test_making_one_does_nothing(
        self, memory: Memory, connection: Connection
    ) -> None:
        """Neither bytes nor a thread; it can be closed all the same."""
        threads = threading.active_count()
        assert memory.sent == b""
        connection.close()
        assert memory.is_closed
        assert not connection.is_open
        assert threading.active_count() == threads

    def test_a_start_is_the_handshake(
        self, memory: Memory, connection: Connection
    ) -> None:
        """Then requests are answered."""
        memory.feed(builders.connected(1000, "S 1"))
        connection.start(60)
        assert memory.sent == commands.connect("v")
        assert connection.server_version == "S 1"
        assert connection.max_message_size_bytes == 1000
        pending = connection.request(commands.close_consumer(7))
        assert pending.name == "CLOSE_CONSUMER"
        assert memory.sent.endswith(commands.close_consumer(7).encode(1))
        memory.feed(builders.frame(builders.command(13, (1, 1))))
        assert outcome(pending) is DONE
        assert pending.outcome() is DONE

    def test_a_start_that_fails_ends_it(
        self, memory: Memory, connection: Connection
    ) -> None:
        """The thread goes, and frees the transport."""
        memory.feed(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        with pytest.raises(ProtocolError, match=r"b:1.*HTTP server"):
            connection.start(60)
        wait_until(lambda: memory.is_closed)
        assert isinstance(
            outcome(connection.request(LOOKUP)), ProtocolError
        )  # the first reason stays


class TestRequests:
    def test_many_are_under_way_at_once(
        self, scripted: ScriptedBroker, connection: Connection
    ) -> None:
        """Nothing waits for an answer before the next request goes out."""
        scripted.answer_together(100, "LOOKUP")
        futures = [connection.request(LOOKUP) for _ in range(100)]
        assert len({outcome(f).request_id for f in futures}) == 100

    def test_answers_may_come_in_any_order(
        self, scripted: ScriptedBroker, connection: Connection
    ) -> None:
        """An answer goes to the request with its id."""
        later = threading.Event()
        scripted.script("LOOKUP", late(later))
        first, second = connection.request(LOOKUP), connection.request(LOOKUP)
        assert outcome(second).request_id == 2
        assert not first.done()
        later.set()
        assert outcome(first).request_id == 1

    @pytest.mark.parametrize(
        ("code", "kind"),
        [
            ("TopicNotFound", TopicNotFoundError),
            ("AuthorizationError", AuthError),
            ("TooManyRequests", BrokerError),
        ],
    )
    def test_a_refusal_is_for_its_request_alone(
        self,
        scripted: ScriptedBroker,
        connection: Connection,
        code: str,
        kind: type[BrokerError],
    ) -> None:
        """The connection goes on."""
        scripted.script("LOOKUP", refuse(code))
        with pytest.raises(kind, match=code):
            connection.ask(LOOKUP, 60)
        connection.ask(LOOKUP, 60)

    def test_no_answer_in_time(
        self, scripted: ScriptedBroker, connection: Connection
    ) -> None:
        """The error names the broker and the request; the connection stays."""
        scripted.script("LOOKUP", silence)
        with pytest.raises(TransportError, match=r"not answer LOOKUP within 0\.05 s"):
            connection.ask(LOOKUP, 0.05)
        assert connection.is_open

    @pytest.mark.parametrize(
        ("request_", "answer"),
        [
            (LOOKUP, "partitionMetadataResponse"),
            (commands.partitioned_metadata(TOPIC), "success"),
            (commands.topics_of_namespace("a/b"), "success"),
            (commands.get_last_message_id(1), "success"),
            (commands.new_txn(0, ttl_ms=1000), "endTxnResponse"),
            (commands.close_consumer(1), "producer_success"),
        ],
    )
    def test_an_answer_of_another_kind(
        self,
        scripted: ScriptedBroker,
        connection: Connection,
        request_: Request[Any],
        answer: str,
    ) -> None:
        """Such a broker cannot be trusted with anything: the connection ends."""
        field = pb.BaseCommand.DESCRIPTOR.fields_by_name[answer]

        def reply(broker: Any, session: Any, command: pb.BaseCommand) -> None:
            whole: Any = pb.BaseCommand(
                type=pb.BaseCommand.Type.ValueType(field.number)
            )
            body = getattr(whole, answer)
            body.request_id = 1
            if answer == "producer_success":
                body.producer_name = "p"
            session.send_bytes(encode_frame(whole.SerializeToString()))

        for name in (
            "LOOKUP",
            "PARTITIONED_METADATA",
            "GET_TOPICS_OF_NAMESPACE",
            "GET_LAST_MESSAGE_ID",
            "NEW_TXN",
            "CLOSE_CONSUMER",
        ):
            scripted.always(name, reply)
        with pytest.raises(ProtocolError, match="answered by Command") as caught:
            connection.ask(request_, 60)
        assert scripted.address in str(caught.value)
        assert not connection.is_open

    def test_what_was_given_up_is_forgotten(
        self, scripted: ScriptedBroker, connection: Connection
    ) -> None:
        """Brokers leave requests unanswered; a driver that goes on must not grow."""
        scripted.always("LOOKUP", silence)
        scripted.always("CLOSE_CONSUMER", silence)
        for _ in range(50):
            with pytest.raises(TransportError, match="did not answer"):
                connection.ask(LOOKUP, 0)
        connection.tell(commands.close_consumer(1))  # nobody waits for it
        assert connection._requests == {}
        assert connection.is_idle

    @pytest.mark.parametrize("action", [refuse("NotAllowedError"), usual])
    def test_a_late_answer_meets_nobody(
        self, scripted: ScriptedBroker, connection: Connection, action: Any
    ) -> None:
        """Nor does it harm those that wait for theirs."""
        later = threading.Event()
        scripted.script("LOOKUP", late(later, action), late(later))
        with pytest.raises(TransportError, match="did not answer"):
            connection.ask(LOOKUP, 0)
        future = connection.request(LOOKUP)
        later.set()
        assert outcome(future).request_id == 2
        connection.ask(LOOKUP, 60)

    def test_a_sentence_stays_in_its_line(
        self, scripted: ScriptedBroker, connection: Connection
    ) -> None:
        """What a broker says is shown, but it cannot write a log, nor fill one."""
        sentence = "no\r\n2026-01-01 ERROR all is lost \x1b[2J" + "x" * (1 << 19)
        scripted.script("LOOKUP", refuse("NotAllowedError", sentence))
        with pytest.raises(BrokerError, match="all is lost") as caught:
            connection.ask(LOOKUP, 60)
        assert str(caught.value).isprintable()
        assert len(str(caught.value)) < 700
        assert len(caught.value.server_message) == 500


class TestEnds:
    @pytest.mark.parametrize("interruption", [KeyboardInterrupt, SystemExit])
    def test_an_interrupt_in_the_middle_of_a_frame(
        self,
        connection: Connection,
        monkeypatch: pytest.MonkeyPatch,
        interruption: type[BaseException],
    ) -> None:
        """Half of it may be out, and nothing can follow that."""

        def send(data: bytes) -> None:
            raise interruption

        monkeypatch.setattr(connection._transport, "send", send)
        with pytest.raises(interruption):
            connection.request(LOOKUP)
        assert not connection.is_open
        assert connection._requests == {}
        with pytest.raises(TransportError, match="interrupted"):
            connection.send(commands.ping())

    def test_a_fault_of_ours_hangs_nobody(
        self,
        scripted: ScriptedBroker,
        connection: Connection,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        """Whatever happens in the reading thread, those that wait learn of it."""
        scripted.add_topic(TOPIC, numbered(1, 1))
        box = FaultyBox()
        scripted.script("LOOKUP", silence)
        future = connection.request(LOOKUP)
        subscribe(connection, box, 1)
        error = outcome(future)
        assert isinstance(error, ProtocolError)
        assert "a bug" in str(error)
        assert scripted.address in str(error)
        wait_until(lambda: box.endings)
        assert "unexpected failure" in caplog.text

    @pytest.mark.parametrize(
        ("action", "kind"),
        [(cut, TransportError), (garbage(b"\0\0\0\1oops"), ProtocolError)],
    )
    def test_everything_that_waits_learns_of_it(
        self,
        scripted: ScriptedBroker,
        connection: Connection,
        action: Any,
        kind: type[PulsarSparkError],
    ) -> None:
        """Requests and consumers each get an exception, and each one of its own."""
        box = Box()
        connection.attach(box)
        scripted.script("LOOKUP", silence, silence, action)
        futures = [connection.request(LOOKUP) for _ in range(3)]
        errors = [outcome(future) for future in futures]
        wait_until(lambda: box.endings)
        for error in [*errors, *box.endings]:
            assert isinstance(error, kind)
            assert scripted.address in str(error)
        assert len({id(error) for error in [*errors, *box.endings]}) == 4
        assert not connection.is_open

    def test_late_calls_say_why(
        self, scripted: ScriptedBroker, connection: Connection
    ) -> None:
        """Requests, frames and consumers on a connection that ended get its reason."""
        scripted.cut()
        wait_until(lambda: not connection.is_open)
        box = Box()
        connection.attach(box)
        assert isinstance(box.endings[0], TransportError)
        assert isinstance(outcome(connection.request(LOOKUP)), TransportError)
        with pytest.raises(TransportError):
            connection.send(commands.ping())

    def test_a_failure_between_check_and_send_is_not_lost(
        self, connection: Connection, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Whatever ended the connection meanwhile arrives in the future."""

        def send(frame: bytes) -> None:
            raise ProtocolError("ended a moment ago")

        monkeypatch.setattr(connection, "send", send)
        error = outcome(connection.request(LOOKUP))
        assert isinstance(error, ProtocolError)
        assert not connection.is_open

    def test_closing_twice_is_closing_once(
        self, scripted: ScriptedBroker, connection: Connection
    ) -> None:
        """The first reason stays."""
        scripted.script("LOOKUP", silence)
        future = connection.request(LOOKUP)
        connection.close()
        connection.close()
        with pytest.raises(TransportError, match="closed by this side"):
            connection.wait(future, 60)

    def test_a_close_from_many_threads(self, scripted: ScriptedBroker) -> None:
        """Requests and closes that race each other all come to an end."""
        for _ in range(10):
            connection = dial(scripted)
            results: list[Any] = []

            def ask(
                connection: Connection = connection,
                results: list[Any] = results,
            ) -> None:
                futures = [connection.request(LOOKUP) for _ in range(50)]
                results.extend(outcome(future) for future in futures)

            threads = [threading.Thread(target=ask) for _ in range(3)]
            for thread in threads:
                thread.start()
            connection.close()
            for thread in threads:
                thread.join(60)
            assert len(results) == 150
            kinds = pb.CommandLookupTopicResponse, TransportError
            assert all(isinstance(result, kinds) for result in results)


class TestConsumers:
    def test_entries_go_to_their_consumer(
        self, scripted: ScriptedBroker, connection: Connection
    ) -> None:
        """Two consumers on one connection each get the topic once."""
        scripted.add_topic(TOPIC, numbered(20, 5))
        boxes = [Box(), Box()]
        for box in boxes:
            subscribe(connection, box, 1000)
        for box in boxes:
            wait_until(lambda box=box: len(box.deliveries) == 20)
            assert [d.entry_id for d in box.deliveries] == list(range(20))

    def test_a_consumer_that_the_broker_closes_is_told(
        self, scripted: ScriptedBroker, connection: Connection
    ) -> None:
        """No error: the topic moves. Others on the connection go on."""
        scripted.add_topic(TOPIC)
        box = Box()
        subscribe(connection, box, 1)
        scripted.close_consumers()
        wait_until(lambda: box.endings)
        assert box.endings == [None]
        assert connection.is_open

    def test_nothing_comes_after_detach(
        self, scripted: ScriptedBroker, connection: Connection
    ) -> None:
        """Entries for a consumer that is gone are dropped."""
        scripted.add_topic(TOPIC)
        box = Box()
        consumer_id = subscribe(connection, box, 10)
        connection.detach(consumer_id)
        scripted.append(TOPIC, *numbered(3, 1))
        connection.ask(LOOKUP, 60)
        assert box.deliveries == []

    def test_requests_before_and_after_detach(
        self, scripted: ScriptedBroker, connection: Connection
    ) -> None:
        """Each has its answer, the oldest first, and none is left."""
        scripted.add_topic(TOPIC, numbered(3, 1))
        consumer_id = subscribe(connection, Box(), 0)
        first, others = threading.Event(), threading.Event()
        scripted.script("GET_LAST_MESSAGE_ID", late(first), late(others), late(others))
        request = commands.get_last_message_id(consumer_id)
        requests = [connection.request(request)]
        connection.detach(consumer_id)
        requests += [connection.request(request) for _ in range(2)]
        first.set()
        assert not await_ends(requests[:1], 60)
        others.set()
        assert not await_ends(requests, 60)
        assert len({str(one.result()) for one in requests}) == 1
        assert connection.is_idle

    def test_far_more_than_was_asked_for(
        self, scripted: ScriptedBroker, connection: Connection
    ) -> None:
        """A broker that does not keep to permits is not obeyed: memory would end."""
        scripted.add_topic(TOPIC, numbered(1, 1))
        box = Box()
        consumer_id = subscribe(connection, box, 0)
        connection.grant(consumer_id, 10)
        (session,) = scripted.sessions
        flood = empty_entry(consumer_id) * 500
        session.send_bytes(flood)  # some more is usual: they read many at a time
        wait_until(lambda: len(box.deliveries) == 501)
        connection.grant(consumer_id, 490)
        session.send_bytes(flood)
        wait_until(lambda: len(box.deliveries) == 1001)
        assert connection.is_open
        session.send_bytes(flood)
        wait_until(lambda: box.endings)
        (error,) = box.endings
        assert isinstance(error, ProtocolError)
        assert "1000 entries more than" in str(error)
        assert scripted.address in str(error)
        assert len(box.deliveries) <= 1500

    def test_who_asked_for_nothing_gets_nothing_for_long(
        self, scripted: ScriptedBroker, connection: Connection
    ) -> None:
        """The same for a consumer that never granted a permit."""
        box = Box()
        consumer_id = connection.attach(box)
        (session,) = scripted.sessions
        session.send_bytes(empty_entry(consumer_id) * 1001)
        wait_until(lambda: box.endings)
        assert isinstance(box.endings[0], ProtocolError)


def empty_entry(consumer_id: int) -> bytes:
    """MESSAGE without anything behind it."""
    place = pb.MessageIdData(ledgerId=7, entryId=1)
    message = pb.CommandMessage(consumer_id=consumer_id, message_id=place)
    command = pb.BaseCommand(type=pb.BaseCommand.MESSAGE, message=message)
    return encode_frame(command.SerializeToString())


class TestProducers:
    def test_events_go_to_their_producer(
        self, scripted: ScriptedBroker, connection: Connection
    ) -> None:
        """Two producers on one connection each hear of their own entries only."""
        outboxes = attach_producers(connection, 2)
        scripted.script("SEND", usual, usual, refuse_entry("NotAllowedError", "no"))
        for producer_id in (*outboxes, *outboxes):
            connection.send(entry(producer_id))
        wait_until(lambda: sum(len(box.refusals) for box in outboxes.values()) == 1)
        wait_until(lambda: sum(len(box.stored) for box in outboxes.values()) == 3)
        for producer_id, box in outboxes.items():
            for event in (*box.stored, *(refusal for refusal, _ in box.refusals)):
                assert event.producer_id == producer_id
            assert not box.endings
        ((refusal, error),) = next(iter(outboxes.values())).refusals
        assert (refusal.code, refusal.message) == ("NotAllowedError", "no")
        assert (error.code, error.server_message) == ("NotAllowedError", "no")
        assert scripted.address in str(error)

    def test_many_frames_go_out_together(
        self,
        scripted: ScriptedBroker,
        connection: Connection,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """In their order, some ten kilobytes at a time; a large one is not copied."""
        ((producer_id, box),) = attach_producers(connection, 1).items()
        sent: list[bytes] = []
        send = connection._transport.send

        def keep(data: bytes) -> None:
            sent.append(data)
            send(data)

        monkeypatch.setattr(connection._transport, "send", keep)
        small, large = entry(producer_id, 1000), entry(producer_id, 100_000)
        frames = [*[small] * 100, large, *[small] * 100]
        connection.send_all(frames)
        connection.send_all([large])
        wait_until(lambda: len(box.stored) == 202)
        assert b"".join(sent) == b"".join([*frames, large])
        assert sent[-1] is large
        assert len(sent) == 2 + 1 + 2 + 1
        assert max(len(data) for data in sent if len(data) < 100_000) <= 64 * 1024

    def test_what_is_stored_counts_though_nonsense_follows(
        self, scripted: ScriptedBroker, connection: Connection
    ) -> None:
        """Receipts of one buffer are heard before the connection ends."""
        outboxes = attach_producers(connection, 2)
        (session,) = scripted.sessions
        first, second = outboxes
        data = b"".join(
            encode_frame(
                pb.BaseCommand(
                    type=pb.BaseCommand.SEND_RECEIPT,
                    send_receipt=receipt_of(one, number),
                ).SerializeToString()
            )
            for number in range(3)
            for one in (first, second)
        )
        session.send_bytes(data + b"\x00\x00\x00\x00")
        for box in outboxes.values():
            wait_until(lambda box=box: box.endings)
            assert isinstance(box.endings[0], ProtocolError)
            assert [one.sequence_id for one in box.stored] == [0, 1, 2]

    def test_a_reply_behind_receipts_is_heard_behind_them(
        self, scripted: ScriptedBroker, connection: Connection
    ) -> None:
        """In one buffer too, with nonsense at its end: who closes has all receipts."""
        ((producer_id, box),) = attach_producers(connection, 1).items()
        (session,) = scripted.sessions
        scripted.script("CLOSE_PRODUCER", silence)
        closing = connection.request(commands.close_producer(producer_id))
        wait_until(lambda: scripted.requests["CLOSE_PRODUCER"])
        were_told: list[bool] = []
        keep = box.receipts

        def receipts(receipts: Sequence[Receipt]) -> None:
            were_told.append(closing.done())
            keep(receipts)

        box.receipts = receipts  # type: ignore[method-assign]
        receipt = pb.BaseCommand(
            type=pb.BaseCommand.SEND_RECEIPT, send_receipt=receipt_of(producer_id)
        )
        success = pb.CommandSuccess(request_id=closing.request_id)
        reply = pb.BaseCommand(type=pb.BaseCommand.SUCCESS, success=success)
        frames = (encode_frame(one.SerializeToString()) for one in (receipt, reply))
        session.send_bytes(b"".join(frames) + b"\x00\x00\x00\x00")
        assert outcome(closing) == pb.CommandSuccess()
        assert were_told == [False]
        wait_until(lambda: box.endings)

    def test_a_producer_that_the_broker_closes_is_told(
        self, scripted: ScriptedBroker, connection: Connection
    ) -> None:
        """No error: the topic moves. Late receipts still come; others go on."""
        outboxes = attach_producers(connection, 2)
        first, second = outboxes
        scripted.script("SEND", silence)
        connection.send(entry(first))
        wait_until(lambda: scripted.requests["SEND"])
        producer = next(p for p in scripted.producers if p.producer_id == first)
        scripted.close_producers(producer.topic)
        wait_until(lambda: outboxes[first].endings)
        assert outboxes[first].endings == [None]
        send_receipt(producer.session, first)
        wait_until(lambda: outboxes[first].stored)
        connection.send(entry(second))
        wait_until(lambda: outboxes[second].stored)
        assert not outboxes[second].endings

    def test_nothing_comes_after_detach(
        self, scripted: ScriptedBroker, connection: Connection
    ) -> None:
        """What still arrives for a producer that is gone is dropped."""
        ((producer_id, box),) = attach_producers(connection, 1).items()
        connection.detach_producer(producer_id)
        connection.send(entry(producer_id))
        connection.ask(LOOKUP, 60)
        scripted.close_producers()
        connection.ask(LOOKUP, 60)
        connection.close()
        assert (box.stored, box.refusals, box.endings) == ([], [], [])

    def test_they_learn_of_the_end(
        self, scripted: ScriptedBroker, connection: Connection
    ) -> None:
        """Each gets an exception of its own; so does one that comes too late."""
        boxes = list(attach_producers(connection, 2).values())
        scripted.cut()
        wait_until(lambda: all(box.endings for box in boxes))
        late_one = OutBox()
        connection.attach_producer(99, late_one)
        endings = [box.endings for box in (*boxes, late_one)]
        assert [len(some) for some in endings] == [1, 1, 1]
        assert all(isinstance(error, TransportError) for (error,) in endings)
        assert len({id(error) for (error,) in endings}) == 3

    def test_a_reason_for_closing(self, connection: Connection) -> None:
        """Who waits is told it."""
        (box,) = attach_producers(connection, 1).values()
        connection.close(TransportError("did not answer"))
        ((error,),) = [box.endings]
        assert "did not answer" in str(error)

    def test_a_frame_that_could_not_be_sent_whole_ends_it(
        self, connection: Connection, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Nothing may follow half a frame; everything that waits learns of it."""
        (box,) = attach_producers(connection, 1).values()

        def send(data: bytes) -> None:
            raise TransportError("half of it")

        monkeypatch.setattr(connection._transport, "send", send)
        with pytest.raises(TransportError, match="half of it"):
            connection.send(entry(1))
        assert not connection.is_open
        assert len(box.endings) == 1

    def test_probes_are_answered_behind_a_frame_that_takes_long(
        self, scripted: ScriptedBroker, connection: Connection
    ) -> None:
        """The reading thread goes on meanwhile, and does not lose the answer."""
        ((producer_id, box),) = attach_producers(connection, 1).items()
        (session,) = scripted.sessions
        large = entry(producer_id, 4_000_000)

        def send_much() -> None:
            for _ in range(5):
                connection.send(large)

        with ThreadPoolExecutor(1) as executor:
            with session.lock:  # it takes nothing while it deals with this one
                connection.send(entry(producer_id))
                sending = executor.submit(send_much)
                wait_until(connection._send_lock.locked)
                scripted.ping()
                send_receipt(session, producer_id)
                wait_until(lambda: box.stored)  # behind the probe: that one is read
                assert not sending.done()
                assert scripted.requests["PONG"] == 0
            sending.result(60)
        wait_until(lambda: scripted.requests["PONG"] == 1)
        assert connection.is_open

    def test_a_flood_of_probes_takes_no_memory(
        self, scripted: ScriptedBroker, connection: Connection
    ) -> None:
        """Answers wait while a frame is on its way out; a few of them will do."""
        (session,) = scripted.sessions
        box = OutBox()
        connection.attach_producer(1, box)
        with connection._send_lock:  # somebody is sending
            for turn in range(1, 21):
                for _ in range(100):
                    session.send(type=pb.BaseCommand.PING, ping=pb.CommandPing())
                send_receipt(session, 1)
                wait_until(lambda turn=turn: len(box.stored) == turn)
            assert 1 <= len(connection._answers) <= 4
        connection.ask(LOOKUP, 60)
        wait_until(lambda: scripted.requests["PONG"])
        assert connection.is_open


class OutBox:
    """An outbox that keeps everything."""

    def __init__(self) -> None:
        self.stored: list[Receipt] = []
        self.refusals: list[tuple[SendRefused, BrokerError]] = []
        self.endings: list[PulsarSparkError | None] = []

    def receipts(self, receipts: Sequence[Receipt]) -> None:
        """Keeps them."""
        self.stored += receipts

    def refused(self, refusal: SendRefused, error: BrokerError) -> None:
        """Keeps both."""
        self.refusals.append((refusal, error))

    def closed(self, error: PulsarSparkError | None) -> None:
        """Keeps why."""
        self.endings.append(error)


def attach_producers(connection: Connection, count: int) -> dict[int, OutBox]:
    """Makes producers, each of its own topic and with an outbox; by id."""
    outboxes = {}
    for number in range(count):
        producer_id = new_producer_id()
        outboxes[producer_id] = OutBox()
        connection.attach_producer(producer_id, outboxes[producer_id])
        request = commands.producer(
            topic=f"{TOPIC}-{number}",
            producer_id=producer_id,
            producer_name="p",
        )
        connection.ask(request, 60)
    return outboxes


def entry(producer_id: int, size_bytes: int = 10) -> bytes:
    """A SEND of one message."""
    encoder = EntryEncoder(producer_id, "p", 2 * size_bytes + 200_000)
    (frame,) = encoder.single(pb.MessageMetadata(), b"." * size_bytes, 0, 1)
    return frame.data


class Looks:
    """How often a connection has looked for what it is sent."""

    def __init__(self, connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
        self._count = 0
        receive = connection._transport.receive

        def counted(buffer: memoryview, timeout_s: float) -> int:
            self._count += 1
            return receive(buffer, timeout_s)

        monkeypatch.setattr(connection._transport, "receive", counted)

    def go_on(self) -> None:
        """Wait until it has dealt with all that had come, and looked again."""
        before = self._count
        wait_until(lambda: self._count > before + 1)


class TestKeepAlive:
    INTERVAL_S = 30.0

    @pytest.fixture(autouse=True)
    def _fast_clock(self, monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
        """Time passes as a test says, and is looked at often."""
        patience.usual(monkeypatch, tick_s=0.02)
        monkeypatch.setattr(module, "time", clock)

    @pytest.fixture
    def connection(self, scripted: ScriptedBroker) -> Iterator[Connection]:
        """A connection to the scripted broker."""
        options = client_options(
            keep_alive_interval_s=self.INTERVAL_S, connection_max_idle_s=0
        )
        one = connect(scripted.address, options)
        yield one
        one.close()

    @pytest.fixture
    def looks(self, connection: Connection, monkeypatch: pytest.MonkeyPatch) -> Looks:
        """Its looks."""
        return Looks(connection, monkeypatch)

    def test_probes_are_answered_while_nobody_takes_rows(
        self, scripted: ScriptedBroker, connection: Connection
    ) -> None:
        """The reading thread does it, whatever Spark does."""
        scripted.add_topic(TOPIC, numbered(3, 1))
        subscribe(connection, Box(), 100)
        scripted.ping()
        scripted.ping()
        wait_until(lambda: scripted.requests["PONG"] == 2)

    def test_an_idle_broker_that_answers_probes_is_kept(
        self,
        scripted: ScriptedBroker,
        connection: Connection,
        looks: Looks,
        clock: Clock,
    ) -> None:
        """Only silence ends a connection."""
        for number in range(1, 5):
            looks.go_on()
            clock.now += self.INTERVAL_S + 1
            wait_until(lambda number=number: scripted.requests["PING"] == number)
            connection.ask(LOOKUP, 60)  # answered behind the probe
        assert connection.is_open

    def test_a_silent_broker_is_dropped(
        self,
        scripted: ScriptedBroker,
        connection: Connection,
        looks: Looks,
        clock: Clock,
    ) -> None:
        """Everything that waits for it gets an error that may be retried."""
        scripted.always("PING", silence)
        scripted.script("LOOKUP", silence)
        box = Box()
        connection.attach(box)
        future = connection.request(LOOKUP)
        looks.go_on()
        clock.now += self.INTERVAL_S + 1
        wait_until(lambda: scripted.requests["PING"])
        looks.go_on()
        assert not future.done()
        clock.now += self.INTERVAL_S + 1
        error = outcome(future)
        assert isinstance(error, TransportError)
        assert "silent for 62 s" in str(error)
        wait_until(lambda: box.endings)
        assert scripted.requests["PING"] == 1

    def test_how_long_silence_lasts(
        self,
        scripted: ScriptedBroker,
        connection: Connection,
        monkeypatch: pytest.MonkeyPatch,
        clock: Clock,
    ) -> None:
        """A probe after one interval, the end after two, by a clock of our own."""
        scripted.script("LOOKUP", silence)
        future = connection.request(LOOKUP)
        began = clock.now
        sent: list[tuple[float, bytes]] = []

        def receive(buffer: memoryview, timeout_s: float) -> int:
            clock.now += 1  # for each look at the socket
            return 0

        def send(data: bytes) -> None:
            sent.append((clock.now - began, data))

        monkeypatch.setattr(connection._transport, "send", send)
        monkeypatch.setattr(connection._transport, "receive", receive)
        error = outcome(future)
        assert isinstance(error, TransportError)
        assert re.search(r"silent for 6[0-2] s", str(error))
        ((probed_after_s, data),) = sent
        assert data == commands.ping()
        assert 29 <= probed_after_s <= 32

    def test_a_sleep_of_the_machine_is_not_their_silence(
        self,
        scripted: ScriptedBroker,
        connection: Connection,
        looks: Looks,
        clock: Clock,
    ) -> None:
        """However long it was, the broker is asked before it is given up."""
        looks.go_on()
        clock.now += 100 * self.INTERVAL_S
        wait_until(lambda: scripted.requests["PING"] or not connection.is_open)
        assert connection.is_open
        connection.ask(LOOKUP, 60)
        assert scripted.requests["PING"] == 1

    def test_our_probe_does_not_wait_for_a_frame(
        self,
        scripted: ScriptedBroker,
        connection: Connection,
        looks: Looks,
        clock: Clock,
    ) -> None:
        """Receipts are heard though a frame has blocked the way for long."""
        ((producer_id, box),) = attach_producers(connection, 1).items()
        (session,) = scripted.sessions
        looks.go_on()
        with connection._send_lock:  # somebody is sending
            clock.now += self.INTERVAL_S + 1
            wait_until(lambda: connection._answers)
            send_receipt(session, producer_id)
            wait_until(lambda: box.stored)
        assert connection.is_open

    def test_our_own_delay_is_not_their_silence(
        self,
        scripted: ScriptedBroker,
        connection: Connection,
        looks: Looks,
        clock: Clock,
    ) -> None:
        """A full inbox that held up the thread for long ends nothing."""
        scripted.add_topic(TOPIC, numbered(1, 1))
        box = Box()
        box.may_deliver.clear()
        subscribe(connection, box, 1)
        assert box.is_delivering.wait(60)
        clock.now += 5 * self.INTERVAL_S
        box.may_deliver.set()
        wait_until(lambda: box.deliveries)
        looks.go_on()
        connection.ask(LOOKUP, 60)
        assert scripted.requests["PING"] == 0
        looks.go_on()
        clock.now += self.INTERVAL_S + 1
        wait_until(lambda: scripted.requests["PING"])
        assert connection.is_open
        assert len(box.deliveries) == 1


def test_an_unreachable_broker_leaves_nothing(scripted: ScriptedBroker) -> None:
    """No thread is made before there is a socket."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
        with pytest.raises(TransportError, match=address):
            connect(address, ClientOptions(ServiceUrl("pulsar", (address,))))
