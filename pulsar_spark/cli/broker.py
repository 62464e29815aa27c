# SPDX-License-Identifier: Apache-2.0
"""``broker``: a Pulsar broker on this machine, for tests and first steps."""

from __future__ import annotations

import argparse
import contextlib
import re
import signal
import time
from collections.abc import Iterator
from types import FrameType
from typing import Any

from pulsar_spark.cli.arguments import DONE, FAILED
from pulsar_spark.cli.output import complain, flushed, say
from pulsar_spark.testing.embedded_broker import EmbeddedBroker
from pulsar_spark.testing.jars import DEFAULT_VERSION, release_of
from pulsar_spark.testing.processes import BrokerStartError


def add(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "broker",
        help="run a Pulsar broker on this machine, to play with",
        description="Run a Pulsar standalone broker that serves this machine only."
        " Ctrl-C ends the\nbroker and removes its data. Maven downloads the jars once,"
        " about 100 MB, and\n250 MB for 5.0. Needs a JDK 17 or newer, 21 for 5.0, and"
        " Maven.",
        epilog="example:\n  pulsar-spark broker --release 4.0.7",
    )
    parser.add_argument(
        "--release",
        type=_release,
        default=DEFAULT_VERSION,
        metavar="VERSION",
        help=f"release of Pulsar, {DEFAULT_VERSION} by default",
    )
    parser.add_argument(
        "--port",
        type=_port,
        default=6650,
        metavar="N",
        help="port of the service URL, 6650 by default; 0 for a free port",
    )
    parser.add_argument(
        "--admin-port",
        type=_port,
        default=8080,
        metavar="N",
        help="port of the admin REST, 8080 by default; 0 for a free port",
    )
    parser.set_defaults(run=run)


def _port(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,5}", text) or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"a port is 0 to 65535, not {text}")
    return int(text)


def _release(text: str) -> str:
    try:
        release_of(text)
    except BrokerStartError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    ports = {"binary": arguments.port, "web": arguments.admin_port}
    began = time.monotonic()
    broker = EmbeddedBroker(
        version=arguments.release,
        ports={name: port for name, port in ports.items() if port},
    )
    with contextlib.suppress(KeyboardInterrupt), _interrupted_by_sigterm():
        try:
            with broker:
                with flushed():
                    say(
                        f"Pulsar {broker.version} is up after"
                        f" {time.monotonic() - began:.1f} s\n"
                        f"  service URL  {broker.service_url}\n"
                        f"  admin URL    {broker.admin_url}\n"
                        f"  log          {broker.log_file}\n"
                        "Ctrl-C ends the broker and removes its data."
                    )
                while True:
                    broker.check_running()
                    time.sleep(1)
        except BrokerStartError as error:
            complain(str(error))
            return FAILED
    return DONE


@contextlib.contextmanager
def _interrupted_by_sigterm() -> Iterator[None]:
    """Let SIGTERM end the block as Ctrl-C does."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
