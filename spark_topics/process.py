# SPDX-License-Identifier: Apache-2.0
"""Set-up of Python processes that Spark starts.

In a user's own program, signals are the user's.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

#: The program that Spark runs on the driver for each source of a stream.
_SOURCE_RUNNER = "pyspark.sql.streaming.python_streaming_source_runner"

#: And the one that it runs there to commit a micro-batch, or to abort it.
_SINK_RUNNER = "pyspark.sql.worker.python_streaming_sink_runner"

#: And the one that it runs there to have a write pickled for its tasks.
_WRITE_PLANNER = "pyspark.sql.worker.write_into_data_source"


def _program() -> str:
    """Return the module that this process runs as a program, "" if none."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return getattr(spec, "name", None) or ""


class PythonOfSources(NamedTuple):
    """The Python in which Spark looks for sources, plans them and runs their tasks.

    Attributes:
        path: The interpreter, as the environment names it.
        reason: Why Spark takes that one, for messages.
    """

    path: str
    reason: str


def python_of_sources(given: Mapping[str, str]) -> PythonOfSources:
    """Return the Python of a source that Spark finds by itself.

    That is the one of ``PYSPARK_DRIVER_PYTHON``, on executors, too; without that the
    one of ``PYSPARK_PYTHON``. A source that a program registers has the Python of
    ``PYSPARK_PYTHON`` in any case, as functions of users have. Settings of Spark
    change neither. Seen on Spark 4.3.

    Args:
        given: The environment of the driver.
    """
    for name in ("PYSPARK_DRIVER_PYTHON", "PYSPARK_PYTHON"):
        if given.get(name):
            return PythonOfSources(given[name], name)
    return PythonOfSources("python3", "PYSPARK_PYTHON is not set")


@contextlib.contextmanager
def planning() -> Iterator[None]:
    """Plan without the collector of reference cycles, as a block or a decorator.

    A plan of thousands of topic partitions makes objects by the million, which the
    collector would look at over and over: a fifth of a plan's time at 20,000. Their
    memory is freed all the same, since they are in no cycles. At the end it goes back
    to the system.
    """
    is_running = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if is_running:
            gc.enable()
        _give_back_memory()


def _give_back_memory() -> None:
    """Give freed memory back to the system, where the C library is glibc.

    By itself glibc gives back no more than what lies behind all that is still used.
    """
    import ctypes  # only plans need it

    with contextlib.suppress(TypeError, OSError, AttributeError):  # another library
        ctypes.CDLL(None).malloc_trim(0)


def is_spark_worker() -> bool:
    """Return whether Spark started this process to run Python."""
    return _program().startswith("pyspark.")


def drives_source() -> bool:
    """Return whether Spark runs this process for the source of a stream."""
    return _program() == _SOURCE_RUNNER


def plans_write() -> bool:
    """Return whether Spark runs this process to have a write pickled for its tasks."""
    return _is_for(_WRITE_PLANNER)


def only_ends_micro_batches() -> bool:
    """Return whether Spark runs this process to commit or abort, and for nothing else.

    It makes its own writer for that.
    """
    return _is_for(_SINK_RUNNER)


def _is_for(program: str) -> bool:
    # Spark's daemon, which such processes come from, is told what they are to run.
    return program in (_program(), *sys.argv[1:2])


class Termination:
    """Turns SIGTERM into an exit, so that a stream's reader is stopped first.

    Spark ends the source of a stopped query by this signal, and not otherwise.
    """

    def __init__(self) -> None:
        self._has_come = False
        self._is_stopping = False

    def expect(self) -> None:
        """Exit on SIGTERM where this process only drives a reader."""
        is_main = threading.current_thread() is threading.main_thread()
        if drives_source() and is_main:
            signal.signal(signal.SIGTERM, self._leave)

    def stop(self, reader: Callable[[], None]) -> None:
        """Stop the reader; end the process as Spark meant to, if the signal has come.

        Spark closes the process's input first. The signal often comes while the reader
        is stopped for that reason, and does not interrupt what the reader still does.
        What the process would still have to say is not read.

        Args:
            reader: Stops the reader.
        """
        self._is_stopping = True
        reader()
        if self._has_come:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGTERM)

    def _leave(self, *_: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        self._has_come = True
        if not self._is_stopping:
            sys.exit()
