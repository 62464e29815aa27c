# SPDX-License-Identifier: Apache-2.0
"""What happens to the stream: faults in an order and at times that a seed decides."""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
import random
import signal
import sys
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pulsar_spark.testing.admin import AdminError
from pulsar_spark.testing.processes import BrokerStartError
from tests.soak import processes
from tests.soak.site import TOKEN_S
from tests.support.broker_cluster import SESSION_S

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pulsar_spark.testing.admin import Admin
    from tests.soak.site import Site
    from tests.soak.stream import Stream
    from tests.soak.traffic import Feeder, Watcher
    from tests.support.broker_cluster import ClusterBroker
    from tests.support.link_proxy import LinkProxy

#: Each kind of fault, and how often it is in a deck: decks are shuffled, and dealt.
PROCESSES: Mapping[str, int] = {
    "driver killed": 2,
    "driver paused": 1,
    "driver's worker killed": 1,
    "executor killed": 2,
    "worker killed": 4,
    "worker paused": 1,
}
BROKERS: Mapping[str, int] = {
    "broker killed": 2,
    "broker stopped": 1,
    "bundle moved": 3,
    "topic unloaded": 2,
    "connections reset": 2,
    "connections closed": 2,
    "connections cut after some bytes": 2,
    "link silent": 1,
    "link refuses": 1,
    "certificate renewed": 1,
    "token not renewed": 3,
}

#: Seconds after which a stream that shows no new rows of some partition hangs. Bounds a
#: failure; says nothing about how long anything should take.
PATIENCE_S = 900.0

#: Seconds for which the stream's token is not renewed: longer than it lives.
LAPSES_S = (1.05 * TOKEN_S, 1.4 * TOKEN_S)

#: Seconds that a broker has to answer a call before the next fault.
ANSWER_S = 15.0

#: How many faults of ten are got over before the next one begins.
ALONE_OF_TEN = 5


@dataclass
class Fault:
    """Something that happened.

    Attributes:
        kind: What.
        target: To what.
        at_s: Seconds since the beginning.
        at_us: Microseconds since 1970: when it began, or, of a token that expires by
            and by, when there is another one.
        recovery_s: Until rows were seen of every partition that were made after that;
            None before that.
    """

    kind: str
    target: str
    at_s: float
    at_us: int
    recovery_s: float | None = None


class Storm:
    """Makes faults, one after the other, some before the last one is got over.

    Args:
        site: The brokers.
        stream: What it is about.
        feeder: What feeds it.
        watcher: What sees its rows.
        seed: Decides what happens.

    Attributes:
        faults: What has happened.
    """

    def __init__(
        self, site: Site, stream: Stream, feeder: Feeder, watcher: Watcher, seed: int
    ) -> None:
        self.faults: list[Fault] = []
        self._site = site
        self._stream = stream
        self._feeder = feeder
        self._watcher = watcher
        self._random = random.Random(seed)
        self._began = time.monotonic()
        self._away: ClusterBroker | None = None
        self._disturbed: set[LinkProxy] = set()
        self._lapse_s = (
            0.0  # for how long the token that is not renewed just now is not
        )
        self._executor = ThreadPoolExecutor(16)
        self._later: list[Future[None]] = []
        self._acts: Mapping[str, Callable[[], str]] = {
            "driver killed": self._kill_driver,
            "driver paused": self._pause_driver,
            "driver's worker killed": lambda: self._kill(processes.DRIVER_WORKER),
            "executor killed": lambda: self._kill(processes.EXECUTOR_JVM),
            "worker killed": lambda: self._kill(processes.WORKER),
            "worker paused": self._pause_worker,
            "broker killed": self._kill_broker,
            "broker stopped": self._stop_broker,
            "bundle moved": self._move,
            "topic unloaded": self._unload,
            "connections reset": lambda: self._cut(reset=True),
            "connections closed": lambda: self._cut(reset=False),
            "connections cut after some bytes": self._cut_after_some_bytes,
            "link silent": self._stall,
            "link refuses": self._refuse,
            "certificate renewed": self._renew,
            "token not renewed": self._lapse,
        }

    def run(self, kinds: Mapping[str, int], seconds: float) -> None:
        """Have faults of these kinds happen for so long, then wait for the last one."""
        until = time.monotonic() + seconds
        deck: list[str] = []
        while time.monotonic() < until:
            if not deck:
                deck = [kind for kind, count in kinds.items() for _ in range(count)]
                self._random.shuffle(deck)
            kind = deck.pop()
            pause_s = self._random.uniform(0.5, 8)
            is_alone = self._random.randrange(10) < ALONE_OF_TEN
            is_alone = is_alone and kind != "token not renewed"  # it lasts by itself
            fault = self._make(kind)
            if fault is None:
                continue
            self.watch(pause_s)
            while is_alone and fault.recovery_s is None:
                self.watch(0.05)
        while self._later or any(fault.recovery_s is None for fault in self.faults):
            self.watch(0.05)

    def watch(self, seconds: float) -> None:
        """Note what is got over, and fail if something is not; for so long."""
        until = time.monotonic() + seconds
        while True:
            now_us = time.time_ns() // 1000
            seen_us = min(self._watcher.newest_us)
            for fault in self.faults:
                if fault.recovery_s is None:
                    past_s = (now_us - fault.at_us) / 1e6
                    if seen_us > fault.at_us:
                        fault.recovery_s = past_s
                    elif past_s > PATIENCE_S:
                        raise AssertionError(f"{fault} is not got over")
            self._stream.restart_if_ended()
            for one in [one for one in self._later if one.done()]:
                self._later.remove(one)
                one.result()
            self._feeder.check()
            self._watcher.check()
            left_s = until - time.monotonic()
            if left_s <= 0:
                return
            time.sleep(min(left_s, 0.05))

    def close(self) -> None:
        """Put everything in order again."""
        self._executor.shutdown()
        for link in self._site.cluster.links:
            link.pass_through()
            link.start()
        for broker in self._site.brokers:
            if not broker.is_running:
                start_again(broker)

    def _make(self, kind: str) -> Fault | None:
        """Make a fault; None where there is nothing to hit just now."""
        fault = Fault(kind, "", time.monotonic() - self._began, time.time_ns() // 1000)
        try:
            fault.target = self._acts[kind]()
        except (AdminError, OSError) as error:  # a broker is just away
            _say(f"{fault.at_s:7.1f} s  {kind}: not now, {str(error)[:100]}")
            return None
        if not fault.target:
            return None
        if kind == "token not renewed":
            fault.at_us += int(self._lapse_s * 1e6)
        self.faults.append(fault)
        _say(f"{fault.at_s:7.1f} s  {kind}: {fault.target}")
        return fault

    def _in_a_while(self, seconds: float, act: Callable[[], None]) -> None:
        def run() -> None:
            time.sleep(seconds)
            act()

        self._later.append(self._executor.submit(run))

    def _ask(self, act: Callable[[], None]) -> None:
        """Ask a broker; one that does not answer soon may take its time."""
        asked = self._executor.submit(act)
        with contextlib.suppress(TimeoutError, concurrent.futures.TimeoutError):
            asked.result(ANSWER_S)

    # -- processes ---------------------------------------------------------------------

    def _kill_driver(self) -> str:
        self._stream.kill()
        self._stream.start()
        return f"number {self._stream.starts - 1}"

    def _pause_driver(self) -> str:
        job = self._stream.job
        seconds = self._random.uniform(1, 20)
        job.pause()
        self._in_a_while(seconds, job.resume)
        return f"for {seconds:.1f} s"

    def _one(self, kind: str) -> processes.Process | None:
        found = [p for p in processes.processes() if p.kind == kind]
        # Of Python workers, one that runs tasks rather than the one that starts them.
        forked = [p for p in found if p.is_forked]
        return self._random.choice(forked or found) if found else None

    def _kill(self, kind: str) -> str:
        one = self._one(kind)
        if one is None:
            return ""
        with contextlib.suppress(ProcessLookupError):
            os.kill(one.pid, signal.SIGKILL)
            return f"process {one.pid}"
        return ""

    def _pause_worker(self) -> str:
        one = self._one(processes.WORKER)
        if one is None:
            return ""
        pid = one.pid
        seconds = self._random.uniform(1, 15)

        def resume() -> None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
            self._in_a_while(seconds, resume)
            return f"process {pid} for {seconds:.1f} s"
        return ""

    # -- brokers -----------------------------------------------------------------------

    @property
    def _admin(self) -> Admin:
        """Calls to a broker that is up."""
        return self._there()[0].admin

    def _there(self) -> list[ClusterBroker]:
        return [one for one in self._site.brokers if one is not self._away]

    def _kill_broker(self) -> str:
        return self._send_away(lambda broker: broker.kill(), SESSION_S + 1)

    def _stop_broker(self) -> str:
        return self._send_away(lambda broker: broker.stop(), 0)

    def _send_away(self, end: Callable[[ClusterBroker], None], least_s: float) -> str:
        if self._away is not None:
            return ""
        broker = self._random.choice(self._site.brokers)
        self._away = broker
        seconds = least_s + self._random.uniform(0, 8)

        def go_and_come_back() -> None:
            end(broker)
            time.sleep(seconds)
            start_again(broker)
            self._away = None

        self._in_a_while(0, go_and_come_back)
        return f"{broker.name} for {seconds:.1f} s"

    def _move(self) -> str:
        name = self._random.choice(self._site.topics())
        to = self._random.choice(self._there())
        admin = self._admin
        self._ask(lambda: admin.unload_bundle(name, to.name))
        return f"of {name} to {to.name}"

    def _unload(self) -> str:
        name = self._random.choice(self._site.topics())
        admin = self._admin
        self._ask(lambda: admin.unload(name))
        return name

    def _lapse(self) -> str:
        if self._lapse_s:
            return ""
        token = self._site.tokens["stream"]
        seconds = self._lapse_s = self._random.uniform(*LAPSES_S)
        token.rest()

        def renew() -> None:
            token.resume()
            self._lapse_s = 0.0

        self._in_a_while(seconds, renew)
        return f"for {seconds:.1f} s"

    def _renew(self) -> str:
        self._site.renew_certificate()
        return f"{self._site.renewals} so far"

    # -- connections -------------------------------------------------------------------

    def _cut(self, *, reset: bool) -> str:
        links = [link for link in self._site.cluster.links if link.live]
        if not links:
            return ""
        link = self._random.choice(links)
        return f"{link.cut_all(reset=reset)} of {link.url}"

    def _disturb(
        self, seconds: float, begin: Callable[[LinkProxy], None], how: str = ""
    ) -> str:
        links = [x for x in self._site.cluster.links if x not in self._disturbed]
        if not links:
            return ""
        link = self._random.choice(links)
        self._disturbed.add(link)
        begin(link)

        def end() -> None:
            link.pass_through()
            link.start()
            self._disturbed.discard(link)

        self._in_a_while(seconds, end)
        return f"{link.url} for {seconds:.1f} s{how}"

    def _cut_after_some_bytes(self) -> str:
        seed = self._random.randrange(1 << 30)
        return self._disturb(
            self._random.uniform(3, 12),
            lambda link: link.cut_every((500, 200_000), seed),
        )

    def _stall(self) -> str:
        return self._disturb(self._random.uniform(1, 40), lambda link: link.stall())

    def _refuse(self) -> str:
        return self._disturb(self._random.uniform(1, 8), lambda link: link.stop())


def start_again(broker: ClusterBroker) -> None:
    """Start a broker; one that does not come up, as on a busy machine, once more."""
    for _ in range(3):
        try:
            broker.start(300)
        except BrokerStartError as error:
            _say(f"{broker.name} does not come up: {str(error)[-500:]}")
            broker.kill()
            time.sleep(SESSION_S)
        else:
            return
    raise BrokerStartError(f"{broker.name} does not come up")


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
