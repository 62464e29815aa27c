# SPDX-License-Identifier: Apache-2.0
"""The Python processes of streams, forked from a process that has imported PySpark.

Spark starts a process for the source of a stream, and for its sink, and each imports
PySpark and Arrow for half a second of processor time: a third of all that a test of a
stream takes. Tasks are forked from a daemon of Spark's already, so a wrapper around
Python, which Spark starts instead, does the same for the other two. Nothing of this
project is imported before the fork.

The wrapper hands over its arguments, its environment and its standard streams, and
lives as long as the process that is forked for it: neither outlives the other. What
Spark starts otherwise is Python itself.
"""

from __future__ import annotations

import atexit
import functools
import importlib
import json
import os
import runpy
import select
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import NoReturn

#: What Spark starts for each stream.
PROGRAMS = (
    "pyspark.sql.streaming.python_streaming_source_runner",
    "pyspark.sql.worker.python_streaming_sink_runner",
)

_CONNECTIONS = 64

#: An object of this kind complains when it goes before its process.
_started: list[subprocess.Popen[bytes]] = []

#: Runs without site-packages, in a hundredth of a second.
_CLIENT = """\
import json, os, socket, sys
server = socket.socket(socket.AF_UNIX)
server.connect({address!r})
text = json.dumps([sys.argv[2:], dict(os.environ), os.getcwd()]).encode()
socket.send_fds(server, [len(text).to_bytes(4, "big")], [0, 1, 2])
server.sendall(text)
sys.exit(int(server.recv(1) or b"1"))
"""


@functools.cache
def start() -> Path:
    """Start the process that is forked, which ends with this process.

    Returns:
        The wrapper, an executable file.
    """
    folder = Path(tempfile.mkdtemp(prefix="forked-python-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    address = str(folder / "fork")
    client = folder / "client.py"
    client.write_text(_CLIENT.format(address=address))
    python = shlex.quote(sys.executable)
    wrapper = folder / "python"
    wrapper.write_text(
        "#!/bin/sh\n"
        f'case "$2" in {"|".join(PROGRAMS)})\n'
        f'exec {python} -I -S {shlex.quote(str(client))} "$@";;\n'
        f'esac\nexec {python} "$@"\n'
    )
    wrapper.chmod(0o755)
    end, _ = os.pipe()  # the other side stays open as long as this process lives
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen(_CONNECTIONS)
        command = [sys.executable, "-m", __name__, str(listener.fileno())]
        _started.append(
            subprocess.Popen(command, stdin=end, pass_fds=[listener.fileno()])
        )
    os.close(end)
    return wrapper


def serve(listener: socket.socket) -> None:
    """Fork for each wrapper that connects, until standard input ends."""
    for program in PROGRAMS:
        importlib.import_module(program)
        del sys.modules[program]  # runpy warns of a program that was imported
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        ready, _, _ = select.select([listener, sys.stdin], [], [])
        if sys.stdin in ready:
            return
        wrapper, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            _become(wrapper)
        wrapper.close()


def _become(wrapper: socket.socket) -> NoReturn:
    """Run the program of a wrapper in this process."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    head, streams, _, _ = socket.recv_fds(wrapper, 4, 3)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    with wrapper.makefile("rb") as file:
        text = file.read(int.from_bytes(head, "big"))
    arguments, environment, folder = json.loads(text)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)

    def end_with_wrapper() -> None:
        wrapper.recv(1)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=end_with_wrapper, daemon=True).start()
    program, *rest = arguments
    sys.argv = [program, *rest]
    status = b"1"
    try:
        runpy.run_module(program, run_name="__main__", alter_sys=True)
        status = b"0"
    except SystemExit as end:
        status = b"1" if end.code else b"0"
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        wrapper.send(status)
        os._exit(int(status))


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
