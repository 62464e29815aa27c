# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import contextlib
import itertools
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from pulsar_spark.client.lookup import TopicLookup, in_turns
from pulsar_spark.client.pool import BrokerAddress, ConnectionPool
from pulsar_spark.errors import (
    AskAgainError,
    AuthError,
    BrokerError,
    ProtocolError,
    PulsarSparkError,
    ScalableTopicError,
    TopicNotFoundError,
    TransportError,
)
from pulsar_spark.options.authentication import AuthenticationOptions, Login, Token
from pulsar_spark.options.secret import Secret
from pulsar_spark.wire import pulsar_api_pb2 as pb
from pulsar_spark.wire.layout import Layout
from tests.support.scripted_broker import (
    LOOPBACK,
    ScriptedBroker,
    client_options,
    cut,
    late,
    look_up,
    redirect,
    refuse,
    refuse_layout,
    silence,
)
from tests.support.waiting import await_true, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.fixtures import Clock

TOPIC = "persistent://public/default/t"
SCALABLE = "topic://public/default/t"


@pytest.fixture
def lookup(pool: ConnectionPool) -> TopicLookup:
    """Questions to the scripted broker."""
    return TopicLookup(pool)


@pytest.fixture
def impatient(scripted: ScriptedBroker, unhurried: Clock) -> Iterator[TopicLookup]:
    """Gives up after a fifth of a second."""
    pool = ConnectionPool(client_options(scripted.address, lookup_timeout_s=0.2))
    yield TopicLookup(pool)
    pool.close()


class TestThrottle:
    @pytest.mark.parametrize(
        ("each", "most", "turns"),
        [
            (5, 50, ["aaaaab", "a"]),
            (2, 50, ["aab", "aa", "aa"]),
            (9, 4, ["aaaa", "aab"]),
            (1, 1, ["a", "a", "a", "a", "a", "a", "b"]),
        ],
    )
    def test_who_is_asked_when(self, each: int, most: int, turns: list[str]) -> None:
        """Neither a broker nor all together are asked too much; all are, in order."""
        to = dict(enumerate("aaaaaab"))
        found = list(in_turns(to, each, most))
        assert ["".join(to[key] for key in turn) for turn in found] == turns
        assert sorted(itertools.chain(*found)) == sorted(to)
        assert [key for turn in found for key in turn if to[key] == "a"] == [*range(6)]

    def test_no_broker_has_more_at_a_time(self, scripted: ScriptedBroker) -> None:
        """The next are sent when those under way are answered."""
        answers = threading.Event()
        scripted.script("PARTITIONED_METADATA", *[late(answers)] * 2)
        limit = client_options(scripted.address, concurrent_lookup_request=2)
        with ConnectionPool(limit) as pool, ThreadPoolExecutor(1) as executor:
            asked = executor.submit(
                TopicLookup(pool).partition_counts, [f"{TOPIC}-{n}" for n in range(7)]
            )
            wait_until(lambda: scripted.requests["PARTITIONED_METADATA"] == 2)
            answers.set()
            assert len(asked.result(60)) == 7
        assert scripted.requests["PARTITIONED_METADATA"] == 7


class TestPartitionCounts:
    def test_partitioned_or_not_or_missing(
        self, scripted: ScriptedBroker, lookup: TopicLookup
    ) -> None:
        """0 for a topic without partitions, None for none; nothing is created."""
        scripted.add_topic(TOPIC)
        scripted.partitions["persistent://public/default/p"] = 7
        names = [TOPIC, "persistent://public/default/p", "persistent://a/b/none"]
        assert lookup.partition_counts(names) == dict(
            zip(names, [0, 7, None], strict=True)
        )
        for body in scripted.bodies["PARTITIONED_METADATA"]:
            assert body.metadata_auto_creation_enabled is False

    def test_all_are_asked_at_once(
        self, scripted: ScriptedBroker, lookup: TopicLookup
    ) -> None:
        """Five hundred topics are one round trip."""
        names = [f"{TOPIC}{index}" for index in range(500)]
        for name in names:
            scripted.add_topic(name)
        scripted.answer_together(500, "PARTITIONED_METADATA")
        assert lookup.partition_counts(names) == dict.fromkeys(names, 0)

    @pytest.mark.parametrize("code", ["TooManyRequests", "ServiceNotReady"])
    def test_a_busy_broker_is_asked_again(
        self, scripted: ScriptedBroker, lookup: TopicLookup, code: str
    ) -> None:
        """What passes is waited for."""
        scripted.add_topic(TOPIC)
        scripted.script("PARTITIONED_METADATA", *[refuse(code)] * 3)
        assert lookup.partition_counts([TOPIC]) == {TOPIC: 0}
        assert scripted.requests["PARTITIONED_METADATA"] == 4

    @pytest.mark.usefixtures("clock")
    def test_not_for_ever(
        self, scripted: ScriptedBroker, impatient: TopicLookup
    ) -> None:
        """`lookupTimeoutMs` is the limit; the error has it, and the last reason."""
        scripted.always("PARTITIONED_METADATA", refuse("TooManyRequests", "too busy"))
        with pytest.raises(
            BrokerError, match=r"too busy\. It .*client.lookupTimeoutMs"
        ):
            impatient.partition_counts([TOPIC])
        assert scripted.requests["PARTITIONED_METADATA"] > 2

    def test_each_host_is_tried_once(self) -> None:
        """Also where that takes longer: a try that has begun is not cut short."""
        with contextlib.ExitStack() as stack:
            silent = [
                stack.enter_context(socket.create_server((LOOPBACK, 0)))
                for _ in range(3)
            ]
            hosts = ["{}:{}".format(*one.getsockname()) for one in silent]
            options = client_options(
                *hosts, connection_timeout_s=0.2, lookup_timeout_s=0.1
            )
            pool = stack.enter_context(ConnectionPool(options))
            with pytest.raises(TransportError, match="lookupTimeoutMs") as caught:
                TopicLookup(pool).partition_counts([TOPIC])
        assert all(host in str(caught.value) for host in hosts)

    def test_a_final_refusal_is_asked_once(
        self, scripted: ScriptedBroker, lookup: TopicLookup
    ) -> None:
        """No right to see the topic will not change by asking again."""
        scripted.always("PARTITIONED_METADATA", refuse("AuthorizationError"))
        with pytest.raises(AuthError, match=f"{TOPIC}.*does not authenticate"):
            lookup.partition_counts([TOPIC])
        assert scripted.requests["PARTITIONED_METADATA"] == 1

    def test_no_right_to_list_a_namespace(
        self, scripted: ScriptedBroker, lookup: TopicLookup
    ) -> None:
        """The namespace is named."""
        scripted.always("GET_TOPICS_OF_NAMESPACE", refuse("AuthorizationError"))
        with pytest.raises(AuthError, match=r"topics of public/default.*anonymousUser"):
            lookup.topics_of_namespace("public/default")

    def test_a_missing_topic_is_asked_once(
        self, scripted: ScriptedBroker, lookup: TopicLookup
    ) -> None:
        """TopicNotFound is an answer."""
        assert lookup.partition_counts([TOPIC]) == {TOPIC: None}
        assert scripted.requests["PARTITIONED_METADATA"] == 1

    def test_more_partitions_than_there_can_be(
        self, scripted: ScriptedBroker, lookup: TopicLookup
    ) -> None:
        """A number that is believed costs memory: it is refused."""
        scripted.partitions[TOPIC] = 100_000
        assert lookup.partition_counts([TOPIC]) == {TOPIC: 100_000}
        scripted.partitions[TOPIC] = 2**32 - 1
        with pytest.raises(ProtocolError, match=f"{TOPIC}.*4,294,967,295 partitions"):
            lookup.partition_counts([TOPIC])

    def test_a_cut_connection_is_opened_again(
        self, scripted: ScriptedBroker, lookup: TopicLookup
    ) -> None:
        """The question is repeated on the new one."""
        scripted.add_topic(TOPIC)
        scripted.script("PARTITIONED_METADATA", cut)
        assert lookup.partition_counts([TOPIC]) == {TOPIC: 0}
        assert scripted.connections == 2

    def test_a_silent_broker(
        self, scripted: ScriptedBroker, impatient: TopicLookup
    ) -> None:
        """The error names the broker and what it did not answer."""
        scripted.always("PARTITIONED_METADATA", silence)
        with pytest.raises(TransportError, match="PARTITIONED_METADATA") as caught:
            impatient.partition_counts([TOPIC])
        assert scripted.address in str(caught.value)


def test_topics_of_a_namespace(scripted: ScriptedBroker, lookup: TopicLookup) -> None:
    """Full names of one namespace's topics."""
    scripted.add_topic(TOPIC)
    scripted.add_topic("persistent://public/other/t")
    assert lookup.topics_of_namespace("public/default") == [TOPIC]


def test_a_topic_that_was_migrated(
    scripted: ScriptedBroker, lookup: TopicLookup
) -> None:
    """Brokers of Pulsar 5 answer its old name as before; the layout tells."""
    scripted.scalable = {TOPIC: SCALABLE}
    ordinary = f"{TOPIC}-2"
    scripted.add_topic(TOPIC)
    scripted.add_topic(ordinary)
    with pytest.raises(ScalableTopicError, match="topic://public/default/t") as caught:
        lookup.partition_counts([TOPIC, ordinary])
    assert caught.value.topic == TOPIC
    assert lookup.partition_counts([ordinary]) == {ordinary: 0}
    opened = [body.session_id for body in scripted.bodies["SCALABLE_TOPIC_LOOKUP"]]
    await_true(
        lambda: (
            sorted(body.session_id for body in scripted.bodies["SCALABLE_TOPIC_CLOSE"])
            == sorted(opened)
        ),
        "the end of each session",
    )


def test_scalable_topics_and_others(
    scripted: ScriptedBroker, lookup: TopicLookup
) -> None:
    """Asked for together: a layout, a number of partitions, or nothing."""
    scripted.scalable = {SCALABLE: SCALABLE, TOPIC: SCALABLE}
    ordinary = "persistent://public/default/ordinary"
    scripted.partitions[ordinary] = 3
    absent = "topic://public/default/absent"
    topics = lookup.topics([TOPIC, SCALABLE, ordinary, absent])
    assert topics[ordinary] == 3
    assert topics[absent] is None
    layout = topics[SCALABLE]
    assert isinstance(layout, Layout)
    assert topics[TOPIC] == layout
    assert layout.topic == SCALABLE
    assert lookup.layouts == {SCALABLE: layout}
    assert lookup.scalable_topics("public/default") == [SCALABLE]
    assert scripted.requests["SCALABLE_TOPIC_LOOKUP"] == 4
    assert not any(
        body.create_if_missing for body in scripted.bodies["SCALABLE_TOPIC_LOOKUP"]
    )
    await_true(
        lambda: scripted.requests["WATCH_SCALABLE_TOPICS_CLOSE"] == 1,
        "the end of the watch",
    )


@pytest.mark.parametrize("name", [TOPIC, SCALABLE])
def test_a_broker_that_cannot_tell(
    scripted: ScriptedBroker, lookup: TopicLookup, name: str
) -> None:
    """It is asked again: a topic that was migrated would lack its new rows."""
    scripted.scalable = {SCALABLE: SCALABLE, TOPIC: SCALABLE}
    scripted.script(
        "SCALABLE_TOPIC_LOOKUP",
        refuse_layout("TopicNotFound", "KeeperErrorCode = Session expired"),
        refuse_layout("TopicNotFound", ""),
    )
    assert isinstance(lookup.topics([name])[name], Layout)
    assert scripted.requests["SCALABLE_TOPIC_LOOKUP"] == 3


@pytest.mark.parametrize("name", [TOPIC, SCALABLE])
def test_a_broker_that_never_can(
    scripted: ScriptedBroker, pool: ConnectionPool, name: str
) -> None:
    """The error is not that there is no such topic."""
    scripted.scalable = {}
    scripted.always(
        "SCALABLE_TOPIC_LOOKUP",
        refuse_layout("TopicNotFound", "KeeperErrorCode = Session expired"),
    )
    with pytest.raises(BrokerError, match=f"{name}: .*Session expired") as caught:
        TopicLookup(pool, patience_s=0.2).topics([name])
    assert not isinstance(caught.value, TopicNotFoundError)


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("TopicNotFound", "Cannot open a lookup for an individual partition: t"),
        ("TopicNotFound", "Topic not found"),
        ("NotAllowedError", "Scalable topics are disabled on this broker"),
    ],
)
def test_an_ordinary_topic(
    scripted: ScriptedBroker, lookup: TopicLookup, code: str, message: str
) -> None:
    """The broker says that it is no scalable topic, each release in its words."""
    scripted.scalable = {}
    scripted.partitions[TOPIC] = 3
    scripted.always("SCALABLE_TOPIC_LOOKUP", refuse_layout(code, message))
    assert lookup.topics([TOPIC]) == {TOPIC: 3}


def test_a_refusal_is_final_whatever_the_layout(
    scripted: ScriptedBroker, lookup: TopicLookup
) -> None:
    """Where the namespace is missing, no broker has a layout for the name either."""
    scripted.scalable = {}
    scripted.always("PARTITIONED_METADATA", refuse("AuthorizationError"))
    scripted.always("SCALABLE_TOPIC_LOOKUP", refuse_layout("TopicNotFound", "none"))
    with pytest.raises(BrokerError, match="AuthorizationError"):
        lookup.topics([TOPIC])
    assert scripted.requests["SCALABLE_TOPIC_LOOKUP"] == 1


def test_a_scalable_topic_of_an_older_broker(
    scripted: ScriptedBroker, lookup: TopicLookup
) -> None:
    """It has none, and is not asked."""
    with pytest.raises(ScalableTopicError, match="new in Pulsar 5"):
        lookup.topics([SCALABLE])
    assert lookup.scalable_topics("public/default") == []
    assert not scripted.requests["WATCH_SCALABLE_TOPICS"]


def test_a_layout_that_cannot_be(scripted: ScriptedBroker, lookup: TopicLookup) -> None:
    """One clear error."""
    scripted.scalable = {TOPIC: "topic://public/default/another"}
    scripted.segments = [pb.ScalableTopicSegment(hash_start=7)]
    with pytest.raises(ProtocolError, match="the hashes 7 to 0"):
        lookup.topics([TOPIC])


def test_older_brokers_are_not_asked_for_segments(
    scripted: ScriptedBroker, lookup: TopicLookup
) -> None:
    """They would cut the connection."""
    scripted.add_topic(TOPIC)
    lookup.partition_counts([TOPIC])
    assert not scripted.requests["SCALABLE_TOPIC_LOOKUP"]


def test_a_list_of_topics_that_has_not_changed(
    scripted: ScriptedBroker, lookup: TopicLookup
) -> None:
    """It comes once; then the broker is told which one is known."""
    scripted.lists_by_hash = True
    pattern = "public/default/t.*"
    for name in (TOPIC, f"{TOPIC}-2", "persistent://public/default/other"):
        scripted.add_topic(name)
    for _ in range(2):
        found = lookup.topics_of_namespace("public/default", pattern)
        assert found == [TOPIC, f"{TOPIC}-2"]
    first, second = scripted.bodies["GET_TOPICS_OF_NAMESPACE"]
    assert first.topics_pattern == second.topics_pattern == pattern
    assert not first.HasField("topics_hash")
    assert second.topics_hash
    scripted.add_topic(f"{TOPIC}-3")
    assert len(lookup.topics_of_namespace("public/default", pattern)) == 3
    assert len(lookup.topics_of_namespace("public/default")) == 4
    assert not scripted.bodies["GET_TOPICS_OF_NAMESPACE"][-1].HasField("topics_hash")


def test_a_list_of_topics_is_no_larger_than_a_message(
    scripted: ScriptedBroker, lookup: TopicLookup
) -> None:
    """By what the broker says of its messages: no frame of its may be larger."""
    scripted.max_message_size = 20_000
    names = [f"{TOPIC}-{number:04}" for number in range(1000)]  # 33 bytes each
    for name in names[:800]:
        scripted.add_topic(name)
    assert lookup.topics_of_namespace("public/default") == names[:800]
    for name in names[800:]:
        scripted.add_topic(name)
    with pytest.raises(ProtocolError) as raised:
        lookup.topics_of_namespace("public/default")
    for part in ("public/default", "topicsPattern", "30240", "`topics`", "maxMessage"):
        assert part in str(raised.value)
    assert "damaged" not in str(raised.value)
    assert raised.value.size_bytes > raised.value.limit_bytes == 30240


def test_a_list_of_topics_has_a_limit_of_its_own(
    scripted: ScriptedBroker, lookup: TopicLookup
) -> None:
    """Also where a broker's messages may be larger, the error says what to change."""
    scripted.max_message_size = 40 << 20
    scripted.add_topic(f"{TOPIC}-{'x' * (17 << 20)}")
    with pytest.raises(ProtocolError, match=rf"too many topics.*{16 << 20} are taken"):
        lookup.topics_of_namespace("public/default")


class TestBrokers:
    def test_who_serves_a_topic(
        self, scripted: ScriptedBroker, lookup: TopicLookup
    ) -> None:
        """The address that the broker names, without a scheme."""
        assert lookup._pool.last_broker(TOPIC) is None
        assert lookup.brokers([TOPIC]) == {TOPIC: BrokerAddress(scripted.address)}
        assert scripted.bodies["LOOKUP"][0].authoritative is False
        assert lookup._pool.last_broker(TOPIC) == BrokerAddress(scripted.address)

    def test_a_redirect_is_followed(
        self, scripted: ScriptedBroker, lookup: TopicLookup
    ) -> None:
        """The next broker is asked with the authority that the first one gave."""
        with ScriptedBroker() as other:
            scripted.script("LOOKUP", redirect(other.url, authoritative=True))
            assert lookup.brokers([TOPIC]) == {TOPIC: BrokerAddress(other.address)}
            assert other.bodies["LOOKUP"][0].authoritative is True

    def test_redirects_in_a_circle_end(
        self, scripted: ScriptedBroker, pool: ConnectionPool
    ) -> None:
        """After `maxLookupRedirects` the answer is an error that names the option."""
        options = client_options(scripted.address, max_lookup_redirects=5)
        pool = ConnectionPool(options)
        scripted.always("LOOKUP", redirect(scripted.url))
        found = TopicLookup(pool).brokers([TOPIC])[TOPIC]
        assert isinstance(found, AskAgainError)
        assert "maxLookupRedirects" in str(found)
        assert scripted.requests["LOOKUP"] == 6
        pool.close()

    def test_some_topics_redirected(
        self, scripted: ScriptedBroker, lookup: TopicLookup
    ) -> None:
        """Each topic goes its own way."""
        names = [f"{TOPIC}{index}" for index in range(3)]
        with ScriptedBroker() as other:
            scripted.script("LOOKUP", redirect(other.url))
            found = lookup.brokers(names)
            addresses = [other.address, scripted.address, scripted.address]
            assert found == {
                name: BrokerAddress(address)
                for name, address in zip(names, addresses, strict=True)
            }

    def test_through_a_proxy(
        self, scripted: ScriptedBroker, lookup: TopicLookup, pool: ConnectionPool
    ) -> None:
        """The connection goes to the service URL and names the broker in CONNECT."""
        scripted.script(
            "LOOKUP",
            look_up(
                response=pb.CommandLookupTopicResponse.Connect,
                brokerServiceUrl="pulsar://inner:6650",
                proxy_through_service_url=True,
            ),
        )
        found = lookup.brokers([TOPIC])[TOPIC]
        assert found == BrokerAddress(scripted.address, "inner:6650")
        assert isinstance(found, BrokerAddress)
        assert pool.get(found).broker == "inner:6650"
        assert scripted.bodies["CONNECT"][-1].proxy_to_broker_url == "inner:6650"

    def test_a_broker_that_is_its_own_proxy(
        self, scripted: ScriptedBroker, lookup: TopicLookup
    ) -> None:
        """A standalone broker says so of itself: no second connection for that."""
        scripted.script(
            "LOOKUP",
            look_up(
                response=pb.CommandLookupTopicResponse.Connect,
                brokerServiceUrl=scripted.url,
                proxy_through_service_url=True,
            ),
        )
        assert lookup.brokers([TOPIC]) == {TOPIC: BrokerAddress(scripted.address)}

    @pytest.mark.parametrize(
        "answer",
        [
            {"response": pb.CommandLookupTopicResponse.Failed},
            {
                "response": pb.CommandLookupTopicResponse.Failed,
                "brokerServiceUrl": "pulsar://b:1",
            },
            {"brokerServiceUrl": "pulsar://b:1"},
            {"response": pb.CommandLookupTopicResponse.Connect},
        ],
    )
    def test_an_answer_without_a_broker_is_a_failure(
        self, scripted: ScriptedBroker, lookup: TopicLookup, answer: dict[str, object]
    ) -> None:
        """Failed, or no word on whether it worked, or no name: to be asked again."""
        scripted.script("LOOKUP", look_up(**answer))
        found = lookup.brokers([TOPIC])[TOPIC]
        assert isinstance(found, AskAgainError)
        assert found.retriable
        assert TOPIC in found.message

    def test_a_failure_with_a_code(
        self, scripted: ScriptedBroker, lookup: TopicLookup
    ) -> None:
        """Codes come inside of the reply, too."""
        scripted.script(
            "LOOKUP",
            look_up(
                response=pb.CommandLookupTopicResponse.Failed,
                error=4,
                message="not you",
            ),
        )
        found = lookup.brokers([TOPIC])[TOPIC]
        assert isinstance(found, AuthError)
        assert found.message.startswith(f"{TOPIC}: ")
        assert "not you" in str(found)

    def test_a_redirect_to_nobody(
        self, scripted: ScriptedBroker, lookup: TopicLookup
    ) -> None:
        """One topic's trouble is that topic's answer."""
        scripted.script("LOOKUP", redirect("pulsar://127.0.0.1:1"))
        found = lookup.brokers([TOPIC, f"{TOPIC}2"])
        assert isinstance(found[TOPIC], PulsarSparkError)
        assert found[f"{TOPIC}2"] == BrokerAddress(scripted.address)

    @pytest.mark.parametrize(
        "url",
        [
            "pulsar://user:hunter2@127.0.0.1:6650",
            "pulsar://127.0.0.1:1180591620717411303424",
            "pulsar://127.0.0.1:0",
            "pulsar://127.0.0.1",
            "127.0.0.1:6650",
            "http://127.0.0.1:8080",
            "pulsar://",
            "pulsar://a b:1",
            "pulsar://h:1\nERROR forged",
        ],
    )
    @pytest.mark.parametrize("how", ["Connect", "Redirect"])
    def test_an_address_that_is_none(
        self, scripted: ScriptedBroker, lookup: TopicLookup, url: str, how: str
    ) -> None:
        """It is not connected to, and a secret in it is not printed."""
        response = pb.CommandLookupTopicResponse.LookupType.Value(how)
        answer = look_up(response=response, brokerServiceUrl=url)
        scripted.script("LOOKUP", answer)
        found = lookup.brokers([TOPIC])[TOPIC]
        assert isinstance(found, ProtocolError)
        assert "advertises" in str(found)
        assert "hunter2" not in str(found)
        assert str(found).isprintable()
        assert scripted.connections == 1

    @pytest.mark.parametrize(
        "url",
        [
            "pulsar://{}:6650",
            "pulsar://host/{}",
            "pulsar://a.{}.b:6650",
            "{}",
        ],
    )
    def test_an_address_that_repeats_the_credential(
        self, scripted: ScriptedBroker, url: str
    ) -> None:
        """It is not connected to, and no error has it, in whatever case."""
        secret = "A-token-of-the-test"
        text = url.format(secret.lower())
        scripted.script(
            "LOOKUP",
            look_up(
                response=pb.CommandLookupTopicResponse.Connect, brokerServiceUrl=text
            ),
        )
        authentication = AuthenticationOptions("token", Token(Secret(secret)))
        options = client_options(scripted.address, authentication=authentication)
        with ConnectionPool(options) as pool:
            error = TopicLookup(pool).brokers([TOPIC])[TOPIC]
        assert isinstance(error, ProtocolError)
        assert "<secret>" in str(error)
        assert secret.lower() not in f"{error!r} {error}".lower()
        assert scripted.connections == 1

    def test_a_password_that_each_address_has(self, scripted: ScriptedBroker) -> None:
        """It is a word like another: brokers are found."""
        password = Secret("pulsar", "x")
        options = client_options(
            scripted.address,
            authentication=AuthenticationOptions("basic", Login("ann", password)),
        )
        with ConnectionPool(options) as pool:
            assert TopicLookup(pool).brokers([TOPIC])[TOPIC] == BrokerAddress(
                scripted.address
            )

    @pytest.mark.parametrize("how", ["Connect", "Redirect"])
    @pytest.mark.parametrize("field", ["brokerServiceUrl", "brokerServiceUrlTls"])
    def test_a_broker_that_wants_tls(
        self, scripted: ScriptedBroker, lookup: TopicLookup, how: str, field: str
    ) -> None:
        """It is not spoken to in plain; waiting would not help."""
        with ScriptedBroker() as other:
            url = f"pulsar+ssl://{other.address}"
            response = pb.CommandLookupTopicResponse.LookupType.Value(how)
            answer = look_up(response=response, **{field: url})
            scripted.script("LOOKUP", answer)
            found = lookup.brokers([TOPIC])[TOPIC]
            assert isinstance(found, TransportError)
            assert "TLS" in str(found)
            assert not found.retriable
            assert other.connections == 0

    def test_a_proxy_that_speaks_tls_to_its_brokers(
        self, scripted: ScriptedBroker, lookup: TopicLookup
    ) -> None:
        """That is its own business: we speak to the proxy."""
        scripted.script(
            "LOOKUP",
            look_up(
                response=pb.CommandLookupTopicResponse.Connect,
                brokerServiceUrl="pulsar+ssl://inner:6651",
                proxy_through_service_url=True,
            ),
        )
        found = lookup.brokers([TOPIC])[TOPIC]
        assert found == BrokerAddress(scripted.address, "inner:6651")

    def test_redirects_in_ever_new_spellings(
        self, scripted: ScriptedBroker, pool: ConnectionPool, lookup: TopicLookup
    ) -> None:
        """One place is one connection, however it is spelt."""
        host, _, port = scripted.address.rpartition(":")
        with ScriptedBroker() as other:
            other_port = other.address.rpartition(":")[2]
            spellings = [f"pulsar://{host}:{'0' * n}{port}" for n in range(2)]
            spellings += [f"PULSAR://{host}:{'0' * n}{other_port}/" for n in range(2)]
            for turn in range(40):
                scripted.script("LOOKUP", redirect(spellings[turn % 4]))
                other.script("LOOKUP", redirect(spellings[(turn + 1) % 4]))
            for _ in range(4):
                lookup.brokers([TOPIC])
            assert scripted.connections == 1
            assert other.connections <= 4
            assert len(pool._slots) <= 2

    def test_what_only_redirected_us_is_closed(
        self, scripted: ScriptedBroker, pool: ConnectionPool, lookup: TopicLookup
    ) -> None:
        """Else a broker could make a worker open connections without end."""
        with contextlib.ExitStack() as others:
            chain = [others.enter_context(ScriptedBroker()) for _ in range(5)]
            for here, there in itertools.pairwise([scripted, *chain]):
                here.always("LOOKUP", redirect(there.url))
            assert lookup.brokers([TOPIC]) == {TOPIC: BrokerAddress(chain[-1].address)}
            assert [other.connections for other in chain] == [1] * 5
            for other in chain[:-1]:
                wait_until(lambda other=other: not other.sessions)
            assert set(pool._slots) == {
                BrokerAddress(scripted.address),
                BrokerAddress(chain[-1].address),
            }
            chain[-1].always("LOOKUP", refuse("ServiceNotReady"))
            assert isinstance(lookup.brokers([TOPIC])[TOPIC], BrokerError)
            for other in chain[:-1]:
                wait_until(lambda other=other: not other.sessions)
            pool.close()

    def test_a_connection_in_use_is_not_closed(
        self, scripted: ScriptedBroker, pool: ConnectionPool, lookup: TopicLookup
    ) -> None:
        """A broker that redirects us may serve another topic, or may have before."""
        with ScriptedBroker() as other, ScriptedBroker() as third:
            scripted.always("LOOKUP", redirect(other.url))
            other.script("LOOKUP", redirect(third.url))
            used = pool.get(BrokerAddress(other.address))
            lookup.brokers([TOPIC])
            assert used.is_open
            assert pool.get(BrokerAddress(other.address)) is used
            pool.close()

    def test_the_listener_is_named(self, scripted: ScriptedBroker) -> None:
        """`pulsar.client.listenerName` goes into the question."""
        options = client_options(scripted.address, listener_name="outside")
        pool = ConnectionPool(options)
        TopicLookup(pool).brokers([TOPIC])
        assert scripted.bodies["LOOKUP"][0].advertised_listener_name == "outside"
        pool.close()
