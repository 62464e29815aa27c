# SPDX-License-Identifier: Apache-2.0
"""A world for the commit protocol that can be explored exhaustively.

Drivers, tasks, a coordinator, the log and the markers, as one small value that never
changes. ``Model.steps`` gives every world that may come next: whoever is alive goes on
by one step, and one of the faults may strike that are left. Whoever is not chosen
stands still, and may go on at any time, or never: that is how a process is stopped, and
how it dies.

The drivers run the real steps of ``pulsar_spark.sink.commit_protocol``. What such a
generator does next follows from the results it was sent so far; so a driver's state is
the number of a node in a tree of results, and each node is computed once.

Left out, because nobody can tell the difference:

- which of the two tasks of a micro-batch goes first: they are alike but for their name;
- the moment between a task's beginning of its transaction and the record of it, because
  nothing was sent in it; likewise between its rows and its marker, because both are in
  one transaction, and count if that does;
- moments between the aborts of one request: a transaction that is aborted a little
  later is one that goes on for so long, and aborts are repeated by the next driver;
- what was forgotten for good.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import reduce
from typing import Any, NamedTuple

from pulsar_spark.errors import (
    PulsarSparkError,
    QueryConflictError,
    TransactionLostError,
)
from pulsar_spark.message_id import MessageId, TxnId
from pulsar_spark.sink import commit_protocol
from pulsar_spark.sink.commit_log import (
    NO_TERM,
    Began,
    Opened,
    Outcome,
    Prepared,
    Record,
    Term,
    dump_marker,
    dump_probe,
)
from pulsar_spark.sink.commit_protocol import (
    Append,
    Check,
    CommitProgress,
    Confirm,
    CutLog,
    End,
    FindOut,
    ForgetMarkers,
    KeepMarkers,
    LastMarker,
    Probe,
    ReadLog,
    ReadMarkers,
    Recovered,
    Wait,
)
from pulsar_spark.sink.tally import NO_ROWS, Tally

QUERY = "q"
TASKS = 2
BATCHES = 2

#: States of a transaction: open; open, with rows; committed; aborted; expired.
OPEN, WRITTEN, COMMITTED, ABORTED, EXPIRED = "owcax"


class Txn(NamedTuple):
    """A transaction, and whose rows it holds.

    ``left_out`` names what its commit has not reached: ``r``, the topic of rows, and
    ``m``, that of markers; as capitals, if what it wrote there was dropped since.
    """

    state: str
    batch_id: int
    part: int
    left_out: str = ""

    @property
    def shows_rows(self) -> bool:
        """Whether readers get the rows."""
        return self.state == COMMITTED and "r" not in self.left_out.lower()

    @property
    def shows_marker(self) -> bool:
        """Whether readers get the marker, as far as nothing before holds it back."""
        return self.state == COMMITTED and "m" not in self.left_out.lower()


class Driver(NamedTuple):
    """A driver.

    ``node`` is where its steps are, and ``over`` what an END_TXN found; ``is_late``
    tells that a transaction had expired before it began to commit; ``lost`` are tasks
    of which it has found that rows are lost.
    """

    phase: str
    batch_id: int
    node: int = -1
    ended: int = 0
    over: tuple[Any, ...] = ()
    progress: CommitProgress | None = None
    reports: tuple[Any, ...] = ()
    is_late: bool = False
    lost: tuple[tuple[int, int], ...] = ()


class Task(NamedTuple):
    """An attempt of a task: of which run, and its transaction, -1 for none yet."""

    driver: int
    run: str
    batch_id: int
    part: int
    txn: int
    term: tuple[int, int]


class World(NamedTuple):
    """All there is.

    Attributes:
        log: Records; None for what was forgotten.
        cut: How many of them are.
        markers: Messages, each with its transaction, -1 for none.
        forgotten: How many of these are.
        is_kept: Whether a subscription keeps them; else they are gone at once.
        txns: Transactions, by number.
        recorded: The last micro-batch in Spark's own log of commits.
        runs: How often a driver went to work.
        late: Messages that are still on their way to the log.
        faults: How many may still strike.
        turn: Which driver, or task of one, has moved last.
        switches: How often another one may still go on instead.
        last: The place of the last ``began``.
        told: Tasks of which an error said that rows are lost.
    """

    log: tuple[Record | None, ...] = ()
    cut: int = 0
    markers: tuple[tuple[bytes, int] | None, ...] = ()
    forgotten: int = 0
    is_kept: bool = False
    txns: tuple[Txn, ...] = ()
    recorded: int = -1
    runs: int = 0
    drivers: tuple[Driver, ...] = ()
    tasks: tuple[Task, ...] = ()
    late: tuple[Record, ...] = ()
    faults: int = 0
    turn: int = 0
    switches: int = 0
    last: Term = NO_TERM
    told: frozenset[tuple[int, int]] = frozenset()


EMPTY = World()
DEAD = Driver("dead", 0)
SKIPPED = -2


class BrokenError(AssertionError):
    """The protocol has broken its promise."""


class _Node(NamedTuple):
    start: tuple[Any, ...]
    history: tuple[Any, ...]
    effect: Any
    result: Any
    error: PulsarSparkError | None


class Tree:
    """What steps do, by the results that they were sent.

    Args:
        has_markers: Whether tasks write markers.
        names_entries: Whether a decision names where its tasks wrote.
    """

    def __init__(self, *, has_markers: bool = True, names_entries: bool = True) -> None:
        self._names_entries = names_entries
        self._settings = {"recover": {"has_markers": has_markers}}
        self.nodes: list[_Node] = []
        self._known: dict[Any, int] = {}

    def begin(self, name: str, *arguments: Any) -> int:
        """Node of steps that have just begun."""
        return self._node((name, *arguments), ())

    def go_on(self, node: int, result: Any) -> int:
        """Node behind a result."""
        key = node, result
        if key not in self._known:
            at = self.nodes[node]
            self._known[key] = self._node(at.start, (*at.history, result))
        return self._known[key]

    def _node(self, start: tuple[Any, ...], history: tuple[Any, ...]) -> int:
        key = start, history
        if key not in self._known:
            effect = result = error = None
            name, *arguments = start
            if name == "commit":  # a mapping cannot be hashed
                arguments[1], arguments[4] = dict(arguments[1]), dict(arguments[4])
                place = {"rows": MessageId(0, 0)} if self._names_entries else {}
                arguments.append(dict.fromkeys(arguments[1], place))
            settings = self._settings.get(name, {})
            steps = getattr(commit_protocol, name)(*arguments, **settings)
            try:
                effect = next(steps)
                for one in history:
                    effect = steps.send(one)
            except StopIteration as end:
                effect, result = None, end.value
            except PulsarSparkError as raised:
                effect, error = None, raised
            self._known[key] = len(self.nodes)
            self.nodes.append(_Node(start, history, effect, result, error))
        return self._known[key]


def _tally(batch_id: int, part: int) -> Tally:
    """Of the rows of a task: all have as many, and no two the same ones."""
    return Tally(5, 1 << (batch_id * TASKS + part))


def _tallies(batch_id: int) -> tuple[tuple[int, Tally], ...]:
    return tuple((part, _tally(batch_id, part)) for part in range(TASKS))


class Model:
    """What may happen.

    Args:
        drivers: How many there may be.
        kinds: Faults that may strike: ``expiry`` of a transaction, ``reply`` of END_TXN
            lost, ``twice``, a record stored once more, and late, ``error``, a record
            stored late of which its sender thinks that it was not, ``speculation``, a
            second attempt of a task that runs, ``acknowledgement``, what was forgotten
            is there again, ``unload``, a commit leaves topics out, and its reply may
            be lost.
        is_scalable: Whether tasks write to scalable topics, without markers.
        is_superuser: Whether drivers can mend such a commit.
        names_entries: Whether a decision names where its tasks wrote.
    """

    def __init__(
        self,
        drivers: int,
        kinds: frozenset[str],
        *,
        is_scalable: bool = False,
        is_superuser: bool = True,
        names_entries: bool = True,
    ) -> None:
        self._drivers = drivers
        self._kinds = kinds
        self.is_scalable = is_scalable
        self.is_superuser = is_superuser
        self.tree = Tree(has_markers=not is_scalable, names_entries=names_entries)
        self._interned: dict[Any, Any] = {}

    def steps(self, world: World) -> Iterator[World]:
        """Every world that may come next."""
        if len(world.drivers) < self._drivers and (
            turned := _turned(world, len(world.drivers))
        ):
            yield self._start(turned, len(world.drivers), world.recorded + 1)
        for index, driver in enumerate(world.drivers):
            if (turned := _turned(world, index)) is None:
                continue
            if driver.phase in ("recover", "commit", "abort"):
                yield from self._drive(turned, index, driver)
            elif driver.phase == "record":
                yield self._record(turned, index, driver)
        for index, task in enumerate(world.tasks):
            turned = _turned(world, task.driver)
            if turned and not self._waits_for_its_like(world, index, task):
                yield from self._work(turned, index, task)
        for index, record in enumerate(world.late):
            rest = world.late[:index] + world.late[index + 1 :]
            yield self._append(world._replace(late=rest), record)
        if world.faults:
            yield from self._strike(world)

    def _strike(self, world: World) -> Iterator[World]:
        less = world._replace(faults=world.faults - 1)
        if "expiry" in self._kinds:
            for number, txn in enumerate(world.txns):
                if txn.state in (OPEN, WRITTEN):
                    yield _with_txn(less, number, EXPIRED)
        if "acknowledgement" in self._kinds and (world.cut or world.forgotten):
            yield less._replace(cut=0, forgotten=0)
        if "speculation" in self._kinds:
            for task in world.tasks:
                if task.txn >= 0 and self._is_wanted(world, task):
                    again = world.tasks.count(task._replace(txn=-1))
                    if not again:
                        yield less._replace(tasks=(*world.tasks, task._replace(txn=-1)))

    # -- drivers -----------------------------------------------------------------------

    def _start(self, world: World, index: int, batch_id: int) -> World:
        node = self.tree.begin("recover", f"run {world.runs}")
        driver = Driver("recover", batch_id, node)
        world = world._replace(runs=world.runs + 1)
        if index == len(world.drivers):
            return world._replace(drivers=(*world.drivers, driver))
        return _with_driver(world, index, driver)

    def _record(self, world: World, index: int, driver: Driver) -> World:
        if world.recorded >= driver.batch_id:
            return _with_driver(world, index, DEAD)  # somebody else runs the query
        world = world._replace(recorded=driver.batch_id)
        if driver.batch_id == BATCHES - 1:
            return _with_driver(world, index, DEAD)
        return self._start(world, index, driver.batch_id + 1)

    def _drive(self, world: World, index: int, driver: Driver) -> Iterator[World]:
        effect = self.tree.nodes[driver.node].effect
        match effect:
            case Append(Prepared()) if driver.is_late:
                raise BrokenError("decided to commit the rest of a micro-batch")
            case Append(record):
                yield from self._send(world, index, driver, record)
            case End(txns, commits):
                yield from self._end(world, index, driver, txns, commits)
            case Wait():  # there is no more time in the end
                yield self._go_on(world, index, driver, False)
            case Check(parts):
                yield self._look(world, index, driver, parts)
            case _:
                after, result = _do(world, effect)
                yield self._go_on(after, index, driver, result)

    def _send(
        self, world: World, index: int, driver: Driver, record: Record
    ) -> Iterator[World]:
        sent = self._append(world, record)
        if driver.lost and isinstance(record, Outcome):
            told = sent._replace(told=sent.told.union(driver.lost))
            yield self._failed(told, index, driver)
        else:
            yield self._go_on(sent, index, driver, None)
        if not world.faults:
            return
        late = (*world.late, self._own(record))
        if "twice" in self._kinds:
            twice = sent._replace(faults=world.faults - 1, late=late)
            yield self._go_on(twice, index, driver, None)
        if "error" in self._kinds:
            unsent = world._replace(faults=world.faults - 1, late=late)
            yield self._failed(unsent, index, driver)

    def _end(
        self, world: World, index: int, driver: Driver, txns: Any, commits: bool
    ) -> Iterator[World]:
        if not commits:
            after = reduce(_aborted, (txn.least for txn in txns), world)
            yield self._go_on(after, index, driver, ())
            return

        def done(world: World, *over: Any) -> World:
            now = driver._replace(ended=driver.ended + 1, over=driver.over + over)
            if now.ended < len(txns):
                return _with_driver(world, index, now)
            return self._go_on(world, index, driver, now.over)

        txn = txns[driver.ended]
        # Coordinators of scalable topics know better, for a quarter of an hour.
        if world.txns[txn.least].state not in (OPEN, WRITTEN):
            yield done(world, txn)
            return
        together = {other.least for other in txns}
        world = _drop(world, set(range(txn.least)) - together)
        ended = _with_txn(world, txn.least, COMMITTED)
        yield done(ended)
        if not world.faults:
            return
        ended = ended._replace(faults=world.faults - 1)
        if "reply" in self._kinds:
            yield done(ended, txn)
        for topics in ("r", "m", "rm") if "unload" in self._kinds else ():
            one = ended.txns[txn.least]._replace(left_out=topics)
            hidden = _with(ended, txn.least, one)
            yield done(hidden)
            yield done(hidden, txn)

    def _look(self, world: World, index: int, driver: Driver, parts: Any) -> World:
        """A driver looks whether commits have left topics out."""
        lost = []
        for part in parts.values():
            number = part.txn.least
            txn = world.txns[number]
            after = txn.left_out.replace("r", "R")
            if self.is_superuser:
                after = "".join(filter(str.isupper, txn.left_out))
            if "R" in after:
                lost.append((txn.batch_id, txn.part))
            world = _with(world, number, txn._replace(left_out=after))
        driver = driver._replace(lost=driver.lost + tuple(lost))
        return self._go_on(_with_driver(world, index, driver), index, driver, None)

    def _go_on(self, world: World, index: int, driver: Driver, result: Any) -> World:
        number = self.tree.go_on(driver.node, result)
        node = self.tree.nodes[number]
        if isinstance(node.effect, KeepMarkers):
            world = world._replace(is_kept=True)
            number = self.tree.go_on(number, None)
            node = self.tree.nodes[number]
        if node.effect is not None:
            now = driver._replace(node=number, ended=0, over=())
            return _with_driver(world, index, now)
        if node.error is not None:
            self._check_error(world, driver, node.error)
            return self._failed(world, index, driver)
        if driver.phase == "recover":
            return self._plan(world, index, driver, node.result)
        if driver.phase == "commit":
            return _with_driver(world, index, Driver("record", driver.batch_id))
        return _with_driver(world, index, DEAD)

    def _failed(self, world: World, index: int, driver: Driver) -> World:
        if driver.phase != "commit":
            return _with_driver(world, index, DEAD)
        assert driver.progress is not None
        node = self.tree.begin("abort", driver.progress.term)
        return _with_driver(world, index, Driver("abort", driver.batch_id, node))

    def _check_error(
        self, world: World, driver: Driver, error: PulsarSparkError
    ) -> None:
        if isinstance(error, TransactionLostError):
            txns = dict(self.tree.nodes[driver.node].start[2])
            for part in error.partitions:
                txn = world.txns[txns[part].least]
                is_lost = txn.state == EXPIRED or txn.left_out == "RM"
                if not is_lost and not self._is_overtaken(world, driver):
                    raise BrokenError(f"{error}: of a driver that nobody overtook")
        elif isinstance(error, QueryConflictError):
            if not (self._is_overtaken(world, driver) or world.runs > BATCHES):
                raise BrokenError(f"{error}: there was no other driver")
        else:
            raise error

    def _is_overtaken(self, world: World, driver: Driver) -> bool:
        assert driver.progress is not None or driver.phase == "recover"
        if driver.progress is None:
            return world.runs > 1
        return world.last > driver.progress.term

    def _plan(
        self, world: World, index: int, driver: Driver, found: Recovered
    ) -> World:
        progress = self._own(found.progress.of(QUERY))
        batch_id = driver.batch_id
        if batch_id == BATCHES:  # there is nothing more to write
            return _with_driver(world, index, DEAD)
        reports: list[Any] = []
        try:
            for part in range(TASKS):
                is_there = progress.has(batch_id, part)
                if is_there:
                    progress.require_same_part(batch_id, part, _tally(batch_id, part))
                reports.append(SKIPPED if is_there else None)
            all_rows = sum(dict(_tallies(batch_id)).values(), NO_ROWS)
            progress.require_same_rows(batch_id, all_rows)
        except QueryConflictError as error:
            if "other rows" in str(error):
                raise BrokenError(f"{error}: they are the same") from None
            node = self.tree.begin("abort", None)
            return _with_driver(world, index, Driver("abort", batch_id, node))
        tasks = [
            Task(index, progress.run, batch_id, part, -1, progress.term)
            for part in range(TASKS)
            if reports[part] is None
        ]
        now = Driver("tasks", batch_id, progress=progress, reports=tuple(reports))
        world = world._replace(tasks=(*world.tasks, *tasks))
        return self._when_reported(_with_driver(world, index, now), index)

    def _when_reported(self, world: World, index: int) -> World:
        driver = world.drivers[index]
        if None in driver.reports:
            return world
        txns = {
            part: self._txn_id(txn)
            for part, txn in enumerate(driver.reports)
            if txn != SKIPPED
        }
        if not txns:
            return _with_driver(world, index, Driver("record", driver.batch_id))
        assert driver.progress is not None
        node = self.tree.begin(
            "commit",
            driver.batch_id,
            tuple(txns.items()),
            driver.progress,
            TASKS,
            _tallies(driver.batch_id),
        )
        states = [world.txns[txn.least].state for txn in txns.values()]
        is_late = EXPIRED in states and not self.is_scalable  # which cannot be asked
        now = Driver(
            "commit", driver.batch_id, node, progress=driver.progress, is_late=is_late
        )
        return _with_driver(world, index, now)

    # -- tasks -------------------------------------------------------------------------

    def _is_wanted(self, world: World, task: Task) -> bool:
        driver = world.drivers[task.driver]
        return (
            driver.phase == "tasks"
            and driver.progress is not None
            and driver.progress.run == task.run
            and driver.reports[task.part] is None
        )

    def _waits_for_its_like(self, world: World, index: int, task: Task) -> bool:
        """Whether the other task of the micro-batch may be taken for this one."""
        return task.part > 0 and any(
            (one.run, one.part, one.txn) == (task.run, 0, -1) and task.txn < 0
            for one in world.tasks
        )

    def _work(self, world: World, index: int, task: Task) -> Iterator[World]:
        before, behind = world.tasks[:index], world.tasks[index + 1 :]
        if task.txn < 0:
            number = len(world.txns)
            txn = self._txn_id(number)
            record = Opened(task.batch_id, task.part, txn, task.term)
            opened = world._replace(
                txns=(*world.txns, Txn(OPEN, task.batch_id, task.part)),
                tasks=(*before, task._replace(txn=number), *behind),
            )
            yield self._append(opened, record)
            return
        over = world._replace(tasks=before + behind)
        if world.txns[task.txn].state != OPEN:
            if self._is_wanted(world, task):  # Spark tries it again
                over = over._replace(tasks=(*before, task._replace(txn=-1), *behind))
            yield over
            return
        marker = dump_marker(QUERY, task.batch_id, task.part)
        over = _with_txn(over, task.txn, WRITTEN)
        if not self.is_scalable:
            kept = (marker, task.txn) if world.is_kept else None
            over = over._replace(markers=(*over.markers, kept))
        if self._is_wanted(world, task):
            driver = world.drivers[task.driver]
            reports = list(driver.reports)
            reports[task.part] = task.txn
            now = driver._replace(reports=tuple(reports))
            over = _with_driver(over, task.driver, now)
            over = self._when_reported(over, task.driver)
        yield over

    def _txn_id(self, number: int) -> TxnId:
        return TxnId(0, number, self.is_scalable)

    # -- the log -----------------------------------------------------------------------

    def _append(self, world: World, record: Record) -> World:
        if isinstance(record, Began):
            record = replace(record, term=(0, len(world.log)))
            world = world._replace(last=record.term)
        log = [*world.log, self._own(record)]
        at = len(log) - 1
        # Nobody can tell in which order tasks said that they began.
        while at > world.cut and isinstance(record, Opened):
            before = log[at - 1]
            if not isinstance(before, Opened) or before.txn < record.txn:
                break
            log[at - 1], log[at] = log[at], before
            at -= 1
        return world._replace(log=tuple(log))

    def _own(self, value: Any) -> Any:
        """The value, one object for all that are equal; so they compare in no time."""
        return self._interned.setdefault(value, value)


def _turned(world: World, side: int) -> World | None:
    """The world when this driver, or a task of it, goes on; None if it may not."""
    if world.turn == side:
        return world
    if not world.switches:
        return None
    return world._replace(turn=side, switches=world.switches - 1)


def _with_driver(world: World, index: int, driver: Driver) -> World:
    drivers = list(world.drivers)
    drivers[index] = driver
    return world._replace(drivers=tuple(drivers))


def _do(world: World, effect: Any) -> tuple[World, Any]:
    """What the broker does to please a driver, and the result."""
    match effect:
        case ReadLog():
            entries = enumerate(world.log[world.cut :], world.cut)
            return world, tuple(((0, at), record) for at, record in entries)
        case CutLog((_, last)):
            return _forget(world, cut=last + 1), None
        case Confirm(txns):
            is_open = (OPEN, WRITTEN)
            states = {txn: world.txns[txn.least].state for txn in txns}
            return world, tuple(txn for txn in txns if states[txn] not in is_open)
        case FindOut(parts):
            found = {
                p
                for p, part in parts.items()
                if part.entries and world.txns[part.txn.least].shows_rows
            }
            rest = [part.txn.least for p, part in parts.items() if p not in found]
            return _drop(world, rest), frozenset(found)
        case Probe():
            probe = dump_probe(str(len(world.markers)))
            return world._replace(markers=(*world.markers, (probe, -1))), probe
        case ReadMarkers():
            return world, tuple(data for _, data in _readable(world))
        case LastMarker():
            places = [at for at, _ in _readable(world)]
            return world, (0, places[-1]) if places else None
        case ForgetMarkers((_, last)):
            return _forget(world, markers=last + 1), None
    raise AssertionError(effect)


def _with_txn(world: World, number: int, state: str) -> World:
    txns = list(world.txns)
    if state == COMMITTED and txns[number].state == OPEN:
        raise BrokenError("committed before its task was done")
    txns[number] = txns[number]._replace(state=state)
    return world._replace(txns=tuple(txns))


def _with(world: World, number: int, txn: Txn) -> World:
    txns = list(world.txns)
    txns[number] = txn
    return world._replace(txns=tuple(txns))


def _aborted(world: World, number: int) -> World:
    """The world when a transaction was aborted, if it was open."""
    state = world.txns[number].state
    if state == WRITTEN:
        world = _drop(world, range(number))
    return _with_txn(world, number, ABORTED) if state in (OPEN, WRITTEN) else world


def _drop(world: World, numbers: Iterable[int]) -> World:
    """Topics drop what commits have not reached, as by a later end of a transaction."""
    for number in numbers:
        txn = world.txns[number]
        if txn.left_out:
            world = _with(world, number, txn._replace(left_out=txn.left_out.upper()))
    return world


def _forget(world: World, cut: int = 0, markers: int = 0) -> World:
    return world._replace(
        cut=max(cut, world.cut), forgotten=max(markers, world.forgotten)
    )


def _readable(world: World) -> list[tuple[int, bytes]]:
    """Markers that a reader gets, with their places."""
    found = []
    for at in range(len(world.markers)):
        message = world.markers[at]
        if message is None:
            continue
        data, txn = message
        if txn >= 0 and (
            world.txns[txn].state == WRITTEN or "m" in world.txns[txn].left_out
        ):
            break
        if (txn < 0 or world.txns[txn].shows_marker) and at >= world.forgotten:
            found.append((at, data))
    return found


def check(world: World) -> None:
    """No row is there twice, and none before the micro-batch before it is whole.

    Raises:
        BrokenError: One is.
    """
    seen: dict[tuple[int, int], int] = {}
    for number, txn in enumerate(world.txns):
        if txn.shows_rows:
            where = txn.batch_id, txn.part
            if where in seen:
                raise BrokenError(f"rows of {where} are there twice: {world}")
            seen[where] = number
    for batch_id, _ in seen:
        for part in range(TASKS):
            if batch_id and (batch_id - 1, part) not in world.told.union(seen):
                raise BrokenError(f"micro-batch {batch_id} came too early: {world}")


def is_whole(world: World) -> bool:
    """Whether each row is there."""
    seen = {(t.batch_id, t.part) for t in world.txns if t.shows_rows}
    return len(seen | world.told) == BATCHES * TASKS


class Explorer:
    """Sees every world that can be reached, and what a restart makes of it.

    Args:
        model: What may happen.

    Attributes:
        seen: The worlds.
        ends: Those of them, as they look to a restart, that it made whole.
    """

    def __init__(self, model: Model) -> None:
        self._model = model
        self._alone = Model(
            1,
            frozenset(),
            is_scalable=model.is_scalable,
            is_superuser=model.is_superuser,
        )
        self.seen: set[World] = set()
        self.ends: set[Any] = set()

    def explore(
        self,
        faults: int,
        switches: int,
        *,
        may_be_restored: bool = False,
        first: World = EMPTY,
    ) -> None:
        """Look at everything.

        Args:
            faults: How many may strike.
            switches: How often one driver stops and the other one goes on.
            may_be_restored: Whether what was forgotten can come back.
            first: Where it begins.

        Raises:
            BrokenError: A promise is broken somewhere.
        """
        first = first._replace(faults=faults, switches=switches)
        stack = [first]
        self.seen = {first}
        tidy: Callable[[World], World] = (
            (lambda world: world) if may_be_restored else _without_forgotten
        )
        while stack:
            for one in self._model.steps(stack.pop()):
                world = tidy(one)
                if world not in self.seen:
                    self.seen.add(world)
                    check(world)
                    self._restart(world)
                    stack.append(world)

    def _restart(self, world: World) -> None:
        """All die here, and the query is started again, sooner or much later."""
        for is_later in (False, True):
            txns = world.txns
            if is_later:
                txns = tuple(
                    t._replace(state=EXPIRED) if t.state in (OPEN, WRITTEN) else t
                    for t in txns
                )
            left = world._replace(
                txns=txns,
                runs=100,  # names that nobody had
                drivers=(),
                tasks=(),
                late=(),
                faults=0,
                turn=0,
                switches=0,
            )
            if left not in self.ends:
                self.ends.add(left)
                self._run_to_end(left)

    def _run_to_end(self, world: World) -> None:
        for _ in range(4):
            world = world._replace(drivers=(), tasks=())
            while (after := next(self._alone.steps(world), None)) is not None:
                world = after
            check(world)
            if world.recorded == BATCHES - 1:
                break
        if not is_whole(world):
            raise BrokenError(f"rows are missing: {world}")


def behind_a_scalable_topic() -> World:
    """A query whose first micro-batch has gone to a scalable topic."""
    model = Model(1, frozenset(), is_scalable=True)
    world = World()
    while world.recorded < 0:
        world = next(model.steps(world))
    return world._replace(drivers=(), tasks=())


def _without_forgotten(world: World) -> World:
    """The same to everybody: of what was forgotten there is no more to know."""
    log = (None,) * world.cut + world.log[world.cut :]
    markers = (None,) * world.forgotten + world.markers[world.forgotten :]
    drivers = tuple(DEAD if d.phase == "dead" else d for d in world.drivers)
    tasks = tuple(
        t
        for t in world.tasks
        if t.txn < 0
        or world.txns[t.txn].state == OPEN
        or world.drivers[t.driver].phase == "tasks"
    )
    return world._replace(log=log, markers=markers, drivers=drivers, tasks=tasks)
