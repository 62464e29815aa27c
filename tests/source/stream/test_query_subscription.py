# SPDX-License-Identifier: Apache-2.0
"""What streams over a scripted broker leave there."""

from __future__ import annotations

import itertools
import shlex
from dataclasses import dataclass
from typing import Any

import pytest

from pulsar_spark.cli.arguments import subscription_prefix
from pulsar_spark.cli.main import parser
from pulsar_spark.cli.subscriptions import STREAM, kind_of
from pulsar_spark.client.registrations import Registrations
from pulsar_spark.errors import (
    AuthError,
)
from pulsar_spark.source.stream.subscription import Subscription
from tests.source.stream.queries import (
    P0,
    P1,
    all_rows,
)
from tests.support.scripted_broker import (
    LEDGER,
    ScriptedBroker,
    refuse,
    single,
)

pytestmark = pytest.mark.usefixtures("short_waits")


class TestStop:
    def test_the_subscription_stays(self, two: ScriptedBroker, queries: Any) -> None:
        """Without a consumer; a second stop does nothing."""
        query = queries()
        query.drain()
        query.planner.stop()
        query.planner.stop()
        assert two.consumers == []
        assert [len(two.durable(name)) for name in (P0, P1)] == [1, 1]

    def test_it_is_deleted_if_that_is_wanted(
        self, two: ScriptedBroker, queries: Any
    ) -> None:
        """Of all topic partitions."""
        query = queries(deleteSubscriptionOnStop="true")
        query.drain()
        query.planner.stop()
        assert two.subscriptions == {}

    def test_it_is_deleted_by_a_restart_that_cannot_plan(
        self, two: ScriptedBroker, queries: Any
    ) -> None:
        """It was made by the run before, which was killed; others' stay."""
        query = queries(deleteSubscriptionOnStop="true")
        query.drain()
        query.kill()
        two.script("PARTITIONED_METADATA", refuse("AuthorizationError"))
        with pytest.raises(AuthError):
            query.trigger()
        query.planner.stop()
        assert two.subscriptions == {}

    def test_it_stays_where_the_options_no_longer_name_the_topic(
        self, two: ScriptedBroker, queries: Any
    ) -> None:
        """Whoever reads the others leaves it alone, also when it is deleted there."""
        query = queries(deleteSubscriptionOnStop="true", failOnDataLoss="false")
        query.drain()
        query.kill()
        query.options["topic"] = P0
        query.trigger()
        query.planner.stop()
        assert [len(two.durable(name)) for name in (P0, P1)] == [0, 1]

    def test_it_stays_where_the_pattern_no_longer_matches(
        self, scripted: ScriptedBroker, queries: Any
    ) -> None:
        """The same by `topicsPattern`."""
        names = [f"persistent://public/default/{letter}" for letter in "abc"]
        for name in names:
            scripted.add_topic(name, [single(b"a")])
        query = queries(deleteSubscriptionOnStop="true", failOnDataLoss="false")
        del query.options["topic"]
        query.options["topicsPattern"] = "public/default/[ab]"
        query.drain()
        assert all_rows(query) == [(name, LEDGER, 0, 0) for name in names[:2]]
        query.kill()
        query.options["topicsPattern"] = "public/default/[ac]"
        query.trigger()
        query.planner.stop()
        assert [len(scripted.durable(name)) for name in names] == [0, 1, 0]

    @pytest.mark.parametrize("deletes", [True, False])
    def test_an_interrupt_meanwhile(
        self,
        two: ScriptedBroker,
        queries: Any,
        monkeypatch: pytest.MonkeyPatch,
        deletes: bool,
    ) -> None:
        """Registrations are let go of all the same."""
        query = queries(deleteSubscriptionOnStop=str(deletes).lower())
        query.drain()
        ended = []

        def interrupted(consumers: Subscription) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(Subscription, "delete", interrupted)
        monkeypatch.setattr(Subscription, "close", interrupted)
        monkeypatch.setattr(Registrations, "end", lambda _: ended.append("end"))
        monkeypatch.setattr(Registrations, "close", lambda _: ended.append("close"))
        with pytest.raises(KeyboardInterrupt):
            query.planner.stop()
        assert ended == ["end" if deletes else "close"]

    def test_before_anything_was_asked(self, two: ScriptedBroker, queries: Any) -> None:
        """There is nothing to let go of."""
        queries().planner.stop()
        assert two.connections == 0


@dataclass(frozen=True)
class Run:
    """What a run of a stream is told of subscriptions, and how the run ends."""

    acknowledges: bool = True
    predefined: str = ""
    deletes: bool = False
    is_killed: bool = False

    def __str__(self) -> str:
        words = [
            "acks" if self.acknowledges else "",
            self.predefined,
            "deletes" if self.deletes else "",
            "killed" if self.is_killed else "",
        ]
        return "+".join(filter(None, words)) or "plain"

    @property
    def options(self) -> dict[str, str]:
        """As a user writes them."""
        given = {
            "ackOnCommit": str(self.acknowledges).lower(),
            "deleteSubscriptionOnStop": str(self.deletes).lower(),
        }
        if self.predefined:
            given["predefinedSubscription"] = self.predefined
        return given


RUNS = [
    *(
        Run(acknowledges, predefined, deletes)
        for acknowledges, predefined, deletes in itertools.product(
            (True, False), ("", "reports", "mine"), (True, False)
        )
        if not (deletes and predefined)  # is refused
    ),
    Run(deletes=True, is_killed=True),
]

OWN = "own"


class Model:
    """What runs leave on the broker, by the promises of the guide."""

    def __init__(self) -> None:
        self.name = OWN
        self.left: set[str] = set()

    def run(self, run: Run) -> None:
        """Runs that come one after another, by one checkpoint."""
        self.name = run.predefined or self.name
        if run.acknowledges:
            self.left.add(self.name)
            if run.deletes and not run.is_killed and self.name == OWN:
                self.left.remove(OWN)


class TestOptionsThatChange:
    """Two runs of a query by one checkpoint, of which each has its own options."""

    def run(self, query: Any, run: Run) -> None:
        """Runs it once more, with at least one micro-batch."""
        query.options.pop("predefinedSubscription", None)
        query.options.update(run.options)
        for name in (P0, P1):
            query.broker.append(name, single(b"b"))
        query.drain()
        if not run.is_killed:
            query.planner.stop()
        query.kill()

    def left(self, query: Any) -> set[str]:
        """The names of the subscriptions there are, the query's own as OWN."""
        assert len(query.broker.durable(P0)) == len(query.broker.durable(P1))
        names = {one.name for one in query.broker.durable(P0)}
        return {name if name in ("reports", "mine") else OWN for name in names}

    @pytest.mark.parametrize("second", RUNS, ids=str)
    @pytest.mark.parametrize("first", RUNS, ids=str)
    def test_what_is_left(
        self,
        two: ScriptedBroker,
        queries: Any,
        caplog: pytest.LogCaptureFixture,
        first: Run,
        second: Run,
    ) -> None:
        """As promised; what nothing acknowledges any more is said at the start."""
        query, model = queries(), Model()
        self.run(query, first)
        model.run(first)
        assert self.left(query) == model.left
        own = query.log[0]["subscription"]
        before = set(model.left)
        caplog.clear()
        self.run(query, second)
        model.run(second)
        assert self.left(query) == model.left
        names = {OWN: own, "reports": "reports", "mine": "mine"}
        warned = {
            name
            for name, text in names.items()
            if any(
                f" {text}, which nothing" in line or f" {text} stays, w" in line
                for line in caplog.messages
            )
        }
        followed = {model.name} if second.acknowledges else set()
        assert warned >= (before & model.left) - followed
        assert not warned & followed
        if first.options == second.options or not first.acknowledges:
            assert not warned
        is_told = any(" only. " in line for line in caplog.messages)
        assert is_told == (second.deletes and model.name != OWN)

    def test_a_run_that_ends_with_its_first_micro_batch(
        self, two: ScriptedBroker, queries: Any
    ) -> None:
        """Its successor looks for a start again, and then is shown the name."""
        query = queries(predefinedSubscription="reports")
        query.trigger("before it is committed")
        del query.options["predefinedSubscription"]
        query.options["deleteSubscriptionOnStop"] = "true"
        query.trigger()
        query.planner.stop()
        assert self.left(query) == {"reports"}

    @pytest.mark.parametrize("is_old", [False, True])
    @pytest.mark.parametrize(
        "name", ["reports", "team-2f1c0a1e-0000-4000-8000-0123456789ab"]
    )
    def test_what_the_checkpoint_says(
        self, two: ScriptedBroker, queries: Any, name: str, is_old: bool
    ) -> None:
        """Of no name that was predefined is the subscription deleted.

        Older versions did not say so: of these, it is a name like the query's own.
        """
        query = queries(predefinedSubscription=name)
        query.drain()
        query.kill()
        (offset,) = query.log
        assert offset["predefined"]
        if is_old:
            del offset["predefined"]
        del query.options["predefinedSubscription"]
        query.options["deleteSubscriptionOnStop"] = "true"
        two.append(P0, single(b"b"))
        query.trigger()
        query.planner.stop()
        assert ("predefined" in query.log[-1]) == (name == "reports" or not is_old)
        is_deleted = is_old and name != "reports"
        assert len(two.durable(P0)) == (0 if is_deleted else 1)

    @pytest.mark.parametrize("prefix", ["", "team"])
    def test_the_command_that_is_named(
        self,
        two: ScriptedBroker,
        queries: Any,
        caplog: pytest.LogCaptureFixture,
        prefix: str,
    ) -> None:
        """Finds the subscription as a stream's own, whatever its prefix."""
        query = queries(**({"subscriptionPrefix": prefix} if prefix else {}))
        query.drain()
        query.kill()
        query.options["ackOnCommit"] = "false"
        query.trigger()
        (line,) = caplog.messages
        words = shlex.split(line.partition(" delete it: pulsar-spark ")[2])
        arguments = parser().parse_args(words)
        assert arguments.delete
        assert arguments.execute
        (name,) = arguments.name
        assert [one.name for one in two.durable(P0)] == [name]
        assert kind_of(name, P0, subscription_prefix(arguments)) == STREAM

    def test_the_name_that_is_told(
        self, two: ScriptedBroker, queries: Any, caplog: pytest.LogCaptureFixture
    ) -> None:
        """A stream that goes on says which subscription it has from now on."""
        query = queries()
        query.drain()
        query.kill()
        query.options["predefinedSubscription"] = "mine"
        with caplog.at_level("INFO"):
            query.trigger()
        assert any(line.endswith("; subscription mine") for line in caplog.messages)
