# SPDX-License-Identifier: Apache-2.0
"""Transactions, with coordinators that do what a test tells them to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pulsar_spark.client.pool import ConnectionPool
from pulsar_spark.client.transactions import (
    COORDINATORS,
    TransactionClient,
    TxnStatus,
    status_of,
)
from pulsar_spark.errors import (
    BrokerError,
    ProtocolError,
    PulsarSparkError,
    TransactionsOffError,
    TransportError,
)
from pulsar_spark.message_id import TxnId
from pulsar_spark.wire import pulsar_api_pb2 as pb
from pulsar_spark.wire.commands import TxnAction
from tests.support import patience
from tests.support.scripted_broker import (
    Action,
    ScriptedBroker,
    Session,
    client_options,
    cut,
    look_up,
    redirect,
    refuse,
    silence,
    usual,
    usual_then_cut,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.fixtures import Clock

TOPIC = "persistent://public/default/t-partition-0"
TTL_MS = 60_000
GONE = "TransactionCoordinatorNotFound"
COMMIT, ABORT = TxnAction.COMMIT, TxnAction.ABORT


@pytest.fixture
def client(scripted: ScriptedBroker, pool: ConnectionPool) -> TransactionClient:
    """A client of a cluster with one coordinator."""
    scripted.partitions[COORDINATORS] = 1
    return TransactionClient(pool)


@pytest.fixture
def impatient(
    scripted: ScriptedBroker, unhurried: Clock
) -> Iterator[TransactionClient]:
    """Gives up after a fifth of a second."""
    scripted.partitions[COORDINATORS] = 1
    pool = ConnectionPool(client_options(scripted.address, operation_timeout_s=0.2))
    yield TransactionClient(pool)
    pool.close()


def impatient_of_silence(pool: ConnectionPool) -> TransactionClient:
    """Looks coordinators up again that say nothing for a moment."""
    patience.of_pool(pool, unheard_s=0.05)
    return TransactionClient(pool)


def answered(code: str) -> Action:
    """Refuses END_TXN as brokers do: inside of its answer."""

    def action(broker: ScriptedBroker, session: Session, c: pb.BaseCommand) -> None:
        numbers = pb.CommandEndTxnResponse(
            request_id=c.endTxn.request_id,
            error={"InvalidTxnStatus": 21, "TransactionNotFound": 24}[code],
            message="scripted",
        )
        session.send(type=pb.BaseCommand.END_TXN_RESPONSE, endTxnResponse=numbers)

    return action


def code(error: PulsarSparkError | None) -> str:
    """The broker's name of an error."""
    assert isinstance(error, BrokerError)
    return error.code


class TestBegin:
    def test_one_connection_to_a_coordinator(
        self, scripted: ScriptedBroker, client: TransactionClient
    ) -> None:
        """It is looked up and connected to once; the time to live is passed on."""
        assert [client.begin(TTL_MS), client.begin(777)] == [TxnId(0, 0), TxnId(0, 1)]
        assert [body.txn_ttl_millis for body in scripted.bodies["NEW_TXN"]] == [
            TTL_MS,
            777,
        ]
        assert scripted.connections == 1
        assert scripted.requests["PARTITIONED_METADATA"] == 1
        assert scripted.requests["TC_CLIENT_CONNECT_REQUEST"] == 1
        assert [body.topic for body in scripted.bodies["LOOKUP"]] == [
            f"{COORDINATORS}-partition-0"
        ]

    @pytest.mark.parametrize("count", [100_001, 2**32 - 1])
    def test_more_coordinators_than_there_can_be(
        self, scripted: ScriptedBroker, client: TransactionClient, count: int
    ) -> None:
        """Their number is one that a broker tells."""
        scripted.partitions[COORDINATORS] = count
        with pytest.raises(ProtocolError, match="partitions"):
            client.begin(TTL_MS)

    @pytest.mark.parametrize("most", [1, 2**63, 2**64 - 1])
    def test_a_transaction_of_somebody_else(
        self, scripted: ScriptedBroker, client: TransactionClient, most: int
    ) -> None:
        """The upper half of its id is the coordinator that was asked."""

        def other(broker: ScriptedBroker, session: Session, c: pb.BaseCommand) -> None:
            answer = pb.CommandNewTxnResponse(
                request_id=c.newTxn.request_id, txnid_most_bits=most, txnid_least_bits=0
            )
            session.send(type=pb.BaseCommand.NEW_TXN_RESPONSE, newTxnResponse=answer)

        scripted.script("NEW_TXN", other)
        with pytest.raises(ProtocolError, match=f"Coordinator 0 .* {most}"):
            client.begin(TTL_MS)

    def test_every_coordinator_has_its_turn(
        self, scripted: ScriptedBroker, client: TransactionClient
    ) -> None:
        """Transactions spread over them, and the id says where each is."""
        scripted.partitions[COORDINATORS] = 3
        txns = [client.begin(TTL_MS) for _ in range(100)]
        assert {txn.most for txn in txns} == {0, 1, 2}
        assert set(scripted.transactions) == set(txns)
        assert scripted.requests["TC_CLIENT_CONNECT_REQUEST"] == 3

    def test_a_chosen_coordinator(
        self, scripted: ScriptedBroker, client: TransactionClient
    ) -> None:
        """It and no other is asked, also after a refusal."""
        scripted.partitions[COORDINATORS] = 9
        scripted.script("NEW_TXN", *[refuse(GONE)] * 3)
        assert client.begin(TTL_MS, coordinator=4).most == 4
        assert {body.tc_id for body in scripted.bodies["NEW_TXN"]} == {4}

    def test_coordinators_on_several_brokers(
        self, scripted: ScriptedBroker, client: TransactionClient
    ) -> None:
        """Each is asked where its partition is."""
        scripted.partitions[COORDINATORS] = 2
        with ScriptedBroker() as other:
            scripted.script("LOOKUP", redirect(other.url))
            client.begin(TTL_MS, coordinator=1)
            client.begin(TTL_MS, coordinator=0)
            assert [body.tc_id for body in other.bodies["NEW_TXN"]] == [1]
            assert [body.tc_id for body in scripted.bodies["NEW_TXN"]] == [0]

    @pytest.mark.parametrize("trouble", [refuse(GONE), refuse("ServiceNotReady"), cut])
    @pytest.mark.parametrize("where", ["TC_CLIENT_CONNECT_REQUEST", "NEW_TXN"])
    def test_trouble_is_for_the_next_coordinator(
        self,
        scripted: ScriptedBroker,
        client: TransactionClient,
        trouble: Action,
        where: str,
    ) -> None:
        """Another one is asked, after it was looked up and connected to."""
        scripted.partitions[COORDINATORS] = 2
        scripted.script(where, trouble)
        txn = client.begin(TTL_MS)
        assert list(scripted.transactions) == [txn]
        asked = [body.tc_id for body in scripted.bodies["TC_CLIENT_CONNECT_REQUEST"]]
        assert asked == [1 - txn.most, txn.most]

    @pytest.mark.parametrize("answer", [refuse(GONE), silence], ids=["told", "silent"])
    def test_a_coordinator_that_moved(
        self,
        scripted: ScriptedBroker,
        pool: ConnectionPool,
        answer: Action,
    ) -> None:
        """It is looked up again, and found elsewhere."""
        scripted.partitions[COORDINATORS] = 1
        client = impatient_of_silence(pool)
        client.begin(TTL_MS)
        with ScriptedBroker() as other:
            scripted.script("NEW_TXN", answer)
            to_other = {"response": pb.CommandLookupTopicResponse.Connect}
            scripted.script("LOOKUP", look_up(brokerServiceUrl=other.url, **to_other))
            txn = client.begin(TTL_MS)
            assert txn in other.transactions

    @pytest.mark.usefixtures("clock")
    def test_trouble_that_lasts(
        self, scripted: ScriptedBroker, impatient: TransactionClient
    ) -> None:
        """The last reason is the error, in the end."""
        scripted.always("NEW_TXN", refuse(GONE, "nobody here"))
        with pytest.raises(BrokerError, match="nobody here"):
            impatient.begin(TTL_MS)
        assert scripted.requests["NEW_TXN"] > 2

    def test_too_many_open_transactions(
        self, scripted: ScriptedBroker, impatient: TransactionClient
    ) -> None:
        """Silence is not answered by asking again; the error names the limit."""
        scripted.always("NEW_TXN", silence)
        with pytest.raises(TransportError, match="NEW_TXN within") as caught:
            impatient_of_silence(impatient._pool).begin(TTL_MS)
        assert "maxActiveTransactionsPerCoordinator" in caught.value.message
        assert scripted.requests["NEW_TXN"] == 1
        assert scripted.requests["LOOKUP"] > 1, "it may have moved"

    def test_a_silent_broker(
        self, scripted: ScriptedBroker, impatient: TransactionClient
    ) -> None:
        """A coordinator that never let us in has no limit to speak of."""
        scripted.always("TC_CLIENT_CONNECT_REQUEST", silence)
        with pytest.raises(TransportError, match="TC_CLIENT_CONNECT") as caught:
            impatient.begin(TTL_MS)
        assert "maxActive" not in caught.value.message
        assert "coordinator 0" in caught.value.message

    def test_a_final_refusal(
        self, scripted: ScriptedBroker, client: TransactionClient
    ) -> None:
        """It is not asked for again."""
        scripted.always("NEW_TXN", refuse("AuthorizationError", "not you"))
        with pytest.raises(BrokerError, match="not you"):
            client.begin(TTL_MS)
        assert scripted.requests["NEW_TXN"] == 1

    def test_an_answer_without_an_id(
        self, scripted: ScriptedBroker, client: TransactionClient
    ) -> None:
        """0:0 is a transaction, nothing is none."""

        def empty(broker: ScriptedBroker, session: Session, c: pb.BaseCommand) -> None:
            answer = pb.CommandNewTxnResponse(request_id=c.newTxn.request_id)
            answer.txnid_most_bits = 0
            session.send(type=pb.BaseCommand.NEW_TXN_RESPONSE, newTxnResponse=answer)

        scripted.script("NEW_TXN", empty)
        with pytest.raises(ProtocolError, match="without a transaction id"):
            client.begin(TTL_MS)

    def test_a_time_to_live_that_is_none(self, client: TransactionClient) -> None:
        """Brokers would abort it at once."""
        with pytest.raises(ValueError, match="99 ms"):
            client.begin(99)


class TestTransactionsOff:
    @pytest.mark.parametrize("partitions", [None, 0])
    def test_no_coordinators(
        self, scripted: ScriptedBroker, client: TransactionClient, partitions: int
    ) -> None:
        """The error names the setting and the command."""
        del scripted.partitions[COORDINATORS]
        if partitions is not None:
            scripted.partitions[COORDINATORS] = partitions
        for ask in (client.require, lambda: client.begin(TTL_MS)):
            with pytest.raises(TransactionsOffError) as caught:
                ask()
            assert "transactionCoordinatorEnabled=true" in caught.value.message
            assert "initialize-transaction-coordinator-metadata" in caught.value.message

    def test_switched_off(
        self, scripted: ScriptedBroker, client: TransactionClient
    ) -> None:
        """A cluster that had them once has coordinators, but refuses to connect."""
        off = refuse("NotAllowedError", "not enabled")
        scripted.always("TC_CLIENT_CONNECT_REQUEST", off)
        for ask in (
            client.require,
            lambda: client.begin(TTL_MS),
            lambda: client.add_partitions(TxnId(0, 1), [TOPIC]),
        ):
            with pytest.raises(TransactionsOffError, match="not enabled"):
                ask()
        assert scripted.requests["TC_CLIENT_CONNECT_REQUEST"] == 3
        outcome = client.end([TxnId(0, 1)], COMMIT)[TxnId(0, 1)]
        assert isinstance(outcome, TransactionsOffError)

    def test_switched_on(
        self, scripted: ScriptedBroker, client: TransactionClient
    ) -> None:
        """Nothing is opened to find out."""
        scripted.script("TC_CLIENT_CONNECT_REQUEST", refuse(GONE))
        client.require()
        assert scripted.requests["NEW_TXN"] == 0


class TestAddPartitions:
    def test_all_in_one_request(
        self, scripted: ScriptedBroker, client: TransactionClient
    ) -> None:
        """Topic partitions are added to the transaction, at its coordinator."""
        scripted.partitions[COORDINATORS] = 3
        txn = client.begin(TTL_MS)
        client.add_partitions(txn, [TOPIC, f"{TOPIC}0"])
        assert scripted.transactions[txn] == [TOPIC, f"{TOPIC}0"]
        assert scripted.requests["ADD_PARTITION_TO_TXN"] == 1

    def test_nothing_to_add(
        self, scripted: ScriptedBroker, client: TransactionClient
    ) -> None:
        """No round trip for no topic."""
        client.add_partitions(TxnId(0, 0), [])
        assert scripted.requests["ADD_PARTITION_TO_TXN"] == 0

    def test_a_transaction_of_somebody_else(
        self, scripted: ScriptedBroker, client: TransactionClient
    ) -> None:
        """Its id is all that is needed."""
        txn = client.begin(TTL_MS)
        other = ConnectionPool(client_options(scripted.address))
        TransactionClient(other).add_partitions(txn, [TOPIC])
        other.close()
        assert scripted.transactions[txn] == [TOPIC]

    @pytest.mark.parametrize(
        "trouble", [refuse(GONE), refuse("ServiceNotReady"), cut, usual_then_cut]
    )
    def test_trouble_is_waited_out(
        self, scripted: ScriptedBroker, client: TransactionClient, trouble: Action
    ) -> None:
        """The coordinator is looked up and asked again; twice does no harm."""
        txn = client.begin(TTL_MS)
        scripted.script("ADD_PARTITION_TO_TXN", trouble)
        client.add_partitions(txn, [TOPIC])
        assert set(scripted.transactions[txn]) == {TOPIC}
        assert scripted.requests["ADD_PARTITION_TO_TXN"] == 2
        assert scripted.requests["TC_CLIENT_CONNECT_REQUEST"] == 2

    def test_one_that_is_over(
        self, scripted: ScriptedBroker, client: TransactionClient
    ) -> None:
        """The error names the transaction and the topic, and keeps the code."""
        with pytest.raises(BrokerError) as caught:
            client.add_partitions(TxnId(0, 17), [TOPIC])
        assert caught.value.code == "TransactionNotFound"
        assert "Transaction 0:17" in caught.value.message
        assert TOPIC in caught.value.message
        assert scripted.requests["ADD_PARTITION_TO_TXN"] == 1

    def test_silence(
        self, scripted: ScriptedBroker, impatient: TransactionClient
    ) -> None:
        """The error says what was not answered."""
        txn = impatient.begin(TTL_MS)
        scripted.always("ADD_PARTITION_TO_TXN", silence)
        with pytest.raises(TransportError, match="not answer ADD_PARTITION_TO_TXN"):
            impatient.add_partitions(txn, [TOPIC])


class TestEnd:
    @pytest.mark.parametrize("action", TxnAction)
    def test_all_at_once(
        self, scripted: ScriptedBroker, client: TransactionClient, action: TxnAction
    ) -> None:
        """Many transactions are one round trip, at all of their coordinators."""
        scripted.partitions[COORDINATORS] = 3
        txns = [client.begin(TTL_MS) for _ in range(50)]
        scripted.answer_together(50, "END_TXN")
        assert client.end(txns, action) == dict.fromkeys(txns)
        assert sorted(scripted.ended) == [(txn, action) for txn in sorted(txns)]
        assert not scripted.transactions

    def test_none(self, scripted: ScriptedBroker, client: TransactionClient) -> None:
        """Nothing to end asks nobody."""
        assert client.end([], COMMIT) == {}
        assert scripted.connections == 0

    def test_each_is_asked_for_once(
        self, scripted: ScriptedBroker, client: TransactionClient
    ) -> None:
        """The same transaction, given twice, is one."""
        txn = client.begin(TTL_MS)
        assert client.end(iter([txn, txn]), COMMIT) == {txn: None}
        assert scripted.requests["END_TXN"] == 1

    def test_a_client_that_began_nothing(
        self, scripted: ScriptedBroker, client: TransactionClient, pool: ConnectionPool
    ) -> None:
        """Coordinators are found by the ids alone."""
        txn = client.begin(TTL_MS)
        assert TransactionClient(pool).end([txn], ABORT) == {txn: None}

    @pytest.mark.parametrize("refusal", ["TransactionNotFound", "InvalidTxnStatus"])
    def test_one_of_them_fails(
        self, scripted: ScriptedBroker, client: TransactionClient, refusal: str
    ) -> None:
        """Its error names it and keeps the code, and is final; the others are done."""
        txns = [client.begin(TTL_MS) for _ in range(3)]
        scripted.script("END_TXN", usual, answered(refusal), usual)
        outcomes = client.end(txns, COMMIT)
        error = outcomes.pop(txns[1])
        assert code(error) == refusal
        assert "Transaction 0:1: " in str(error)
        assert outcomes == {txns[0]: None, txns[2]: None}
        assert scripted.requests["END_TXN"] == 3

    def test_a_final_error_beside_trouble(
        self, scripted: ScriptedBroker, client: TransactionClient
    ) -> None:
        """What may yet be done is asked for again, and nothing else."""
        txns = [client.begin(TTL_MS) for _ in range(2)]
        scripted.script("END_TXN", answered("InvalidTxnStatus"), refuse(GONE))
        outcomes = client.end(txns, COMMIT)
        assert code(outcomes[txns[0]]) == "InvalidTxnStatus"
        assert outcomes[txns[1]] is None
        assert scripted.requests["END_TXN"] == 3

    @pytest.mark.parametrize("trouble", [refuse(GONE), refuse("ServiceNotReady"), cut])
    def test_trouble_is_waited_out(
        self, scripted: ScriptedBroker, client: TransactionClient, trouble: Action
    ) -> None:
        """The coordinator is looked up and asked again, for what is left."""
        txns = [client.begin(TTL_MS) for _ in range(3)]
        scripted.script("END_TXN", usual, usual, trouble)
        outcomes = client.end(txns, COMMIT)
        assert outcomes[txns[2]] is None
        # A cut connection may take answers with it that were on their way.
        for error in filter(None, outcomes.values()):
            assert code(error) == "TransactionNotFound"
        assert dict(scripted.ended) == dict.fromkeys(txns, COMMIT)
        assert scripted.requests["TC_CLIENT_CONNECT_REQUEST"] == 2

    def test_an_answer_that_was_lost(
        self, scripted: ScriptedBroker, client: TransactionClient
    ) -> None:
        """It is done, but asking again says only that the transaction is over."""
        txn = client.begin(TTL_MS)
        scripted.script("END_TXN", usual_then_cut)
        assert code(client.end([txn], COMMIT)[txn]) == "TransactionNotFound"
        assert scripted.ended == [(txn, COMMIT)]

    @pytest.mark.usefixtures("clock")
    def test_trouble_that_lasts(
        self, scripted: ScriptedBroker, impatient: TransactionClient
    ) -> None:
        """Who is done stays done; the last reason is the outcome of the others."""
        txns = [impatient.begin(TTL_MS) for _ in range(2)]
        scripted.script("END_TXN", usual)
        scripted.always("END_TXN", refuse(GONE, "nobody here"))
        outcomes = impatient.end(txns, COMMIT)
        assert outcomes[txns[0]] is None
        assert "nobody here" in str(outcomes[txns[1]])
        assert scripted.requests["END_TXN"] > 3

    def test_silence(
        self, scripted: ScriptedBroker, impatient: TransactionClient
    ) -> None:
        """Whether it is done is not known; it is not asked for again."""
        txn = impatient.begin(TTL_MS)
        scripted.always("END_TXN", silence)
        error = impatient.end([txn], COMMIT)[txn]
        assert isinstance(error, TransportError)
        assert "Transaction 0:0: " in error.message
        assert "did not answer END_TXN" in error.message
        assert scripted.requests["END_TXN"] == 1

    def test_one_of_them_is_with_a_coordinator_that_moved(
        self, scripted: ScriptedBroker, pool: ConnectionPool
    ) -> None:
        """The old broker says nothing, and the new one is asked."""
        scripted.partitions[COORDINATORS] = 2
        client = impatient_of_silence(pool)
        stays, moves = (client.begin(TTL_MS, coordinator=number) for number in (0, 1))
        with ScriptedBroker() as other:
            other.transactions[moves] = scripted.transactions[moves]
            scripted.script("END_TXN", usual, silence)
            to_other = {"response": pb.CommandLookupTopicResponse.Connect}
            scripted.script("LOOKUP", look_up(brokerServiceUrl=other.url, **to_other))
            assert client.end([stays, moves], COMMIT) == {stays: None, moves: None}
            assert other.requests["END_TXN"] == 1
            assert scripted.requests["END_TXN"] == 2
        assert pool.service().is_idle, "nothing is waited for any more"

    def test_silence_about_one_of_them(
        self, scripted: ScriptedBroker, impatient: TransactionClient
    ) -> None:
        """The coordinator lives, so it is asked about that one again."""
        txns = [impatient.begin(TTL_MS) for _ in range(2)]
        scripted.script("END_TXN", silence)
        assert impatient.end(txns, COMMIT) == dict.fromkeys(txns)
        assert scripted.requests["END_TXN"] == 3

    def test_a_broker_that_is_gone(
        self, scripted: ScriptedBroker, impatient: TransactionClient
    ) -> None:
        """An outcome, as any other."""
        txn = impatient.begin(TTL_MS)
        scripted.close()
        outcome = impatient.end([txn], ABORT)[txn]
        assert isinstance(outcome, TransportError)
        assert "Transaction 0:0: " in outcome.message


class TestAsk:
    def test_what_is_open(
        self, scripted: ScriptedBroker, client: TransactionClient
    ) -> None:
        """All at once, and none of them gets a topic partition by being asked about."""
        open_one, over = client.begin(TTL_MS), client.begin(TTL_MS)
        client.end([over], ABORT)
        answers = client.ask([open_one, over])
        assert answers[open_one] is None
        assert code(answers[over]) == "TransactionNotFound"
        assert list(scripted.transactions.values()) == [[]]


class TestScalableTopics:
    @pytest.fixture
    def client(
        self, scripted: ScriptedBroker, pool: ConnectionPool
    ) -> TransactionClient:
        """A client for transactions of scalable topics."""
        scripted.partitions[COORDINATORS] = 1
        return TransactionClient(pool, is_scalable=True)

    def test_coordinators_of_their_own(
        self, scripted: ScriptedBroker, client: TransactionClient, pool: ConnectionPool
    ) -> None:
        """Each kind of coordinator is connected to; the numbers are no help."""
        scalable, ordinary = client.begin(TTL_MS), TransactionClient(pool).begin(TTL_MS)
        assert (scalable.is_scalable, ordinary.is_scalable) == (True, False)
        assert client.end([scalable, ordinary], COMMIT) == {
            scalable: None,
            ordinary: None,
        }
        kinds = {True: 0, False: 0}
        for name in ("TC_CLIENT_CONNECT_REQUEST", "NEW_TXN", "END_TXN"):
            for body in scripted.bodies[name]:
                kinds[body.scalable] += 1
        assert kinds == {True: 3, False: 3}

    def test_nobody_needs_to_know_the_topics(
        self, scripted: ScriptedBroker, client: TransactionClient
    ) -> None:
        """Nor can anybody be asked whether a transaction is open."""
        txn = client.begin(TTL_MS)
        client.add_partitions(txn, ["segment://public/default/t/0000-ffff-0"])
        assert client.confirm({txn: TOPIC}) == {txn: None}
        assert not scripted.requests["ADD_PARTITION_TO_TXN"]

    @pytest.mark.parametrize("action", TxnAction)
    def test_how_it_was_ended(
        self, scripted: ScriptedBroker, client: TransactionClient, action: TxnAction
    ) -> None:
        """The coordinator remembers that for a while."""
        txn, other = client.begin(TTL_MS), COMMIT if action is ABORT else ABORT
        for asked, status in [
            (action, TxnStatus.DONE),
            (action, TxnStatus.DONE),
            (other, TxnStatus.OPPOSED),
        ]:
            answer = client.end([txn], asked)[txn]
            assert status_of(txn, answer) is status
        scripted.outcomes.clear()
        answer = client.end([txn], action)[txn]
        assert status_of(txn, answer) is TxnStatus.OVER
        assert TxnStatus.OPPOSED.is_closed
        assert status_of(TxnId(0, 0), BrokerError("x", code="InvalidTxnStatus")) is (
            TxnStatus.ENDING
        )

    def test_brokers_that_have_none(
        self, scripted: ScriptedBroker, client: TransactionClient
    ) -> None:
        """The error names the setting."""
        scripted.always("TC_CLIENT_CONNECT_REQUEST", refuse("NotAllowedError"))
        with pytest.raises(
            TransactionsOffError, match="transactionCoordinatorScalableTopicsEnabled"
        ):
            client.begin(TTL_MS)
