# SPDX-License-Identifier: Apache-2.0
"""Tests of the command ``broker``."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from pulsar_spark.cli.main import parser
from pulsar_spark.testing.admin import Admin
from tests.support.commands import Run
from tests.support.commands import run as run


@pytest.mark.broker
@pytest.mark.slow
@pytest.mark.parametrize("order", [signal.SIGTERM, signal.SIGINT], ids=["TERM", "INT"])
def test_a_broker_to_play_with(order: signal.Signals) -> None:
    """It serves until a signal, and then removes its data."""
    command = [sys.executable, "-m", "pulsar_spark", "broker"]
    with (
        subprocess.Popen(
            [*command, "--port", "0", "--admin-port", "0"],
            stdout=subprocess.PIPE,
            text=True,
            # A shell's background job ignores it, and all that it starts.
            preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
        ) as process,
        ExitStack() as stack,
    ):
        stack.callback(process.kill)
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(5)]
        places = dict(re.findall(r"^  (.*?)  +(\S+)$", "".join(lines), re.M))
        assert Admin(places["admin URL"]).version() in lines[0]
        log = Path(places["log"])
        assert log.exists()
        process.send_signal(order)
        assert process.wait(120) == 0
    assert not log.parent.exists()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ("--release 4", "'4' is no release of Pulsar: write all of it, such as 4.0.7."),
        ("--release latest", "'latest' is no release"),
        ("--release v4.0.7", "'v4.0.7' is no release"),
        ("--port 70000", "a port is 0 to 65535, not 70000"),
        ("--admin-port=-1", "a port is 0 to 65535, not -1"),
        ("--port x", "a port is 0 to 65535, not x"),
        ("--port ٣", "a port is 0 to 65535, not ٣"),
    ],
)
def test_what_cannot_be(
    arguments: str, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The error says what can be, and nothing is started."""
    with pytest.raises(SystemExit):
        parser().parse_args(["broker", *arguments.split()])
    assert text in capsys.readouterr().err


def test_a_port_that_is_taken(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the port, before Maven is asked."""
    monkeypatch.setattr(
        "pulsar_spark.testing.embedded_broker.resolve_classpath", lambda *_, **__: ""
    )
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        code, printed = run("broker", "--port", str(port))
    assert code == 1
    assert f"Port {port} is taken" in printed
