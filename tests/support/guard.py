# SPDX-License-Identifier: Apache-2.0
"""Run one command that must not outlive the process that wanted it.

::

    test run ──pipe──▶ guard ──starts, signals, reaps──▶ broker

The guard is a process of its own that reads its standard input. End of file means that
the test run is gone, however it went (``kill -9`` included), and the command is killed
at once. Two bytes are orders: ``t`` asks the command to end, ``k`` kills it, but not in
the middle of a write. Only the guard signals the command, and it is also the one that
reaps it, so a process id that the system has given to somebody else meanwhile is never
hit. Pipes rather than ``prctl``: this works on macOS as well.

A command that was orphaned leaves a folder behind; the guard's first argument names it
("" for none), and the guard removes it then.

The guard writes the command's process id to its standard output, one line, and exits
with the command's return code.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading


def main(folder: str, command: list[str]) -> None:
    """Start ``command``, report its process id, follow orders until it has ended."""
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=sys.stderr)
    os.write(1, f"{child.pid}\n".encode())
    os.close(1)

    orphaned = threading.Event()

    def reap() -> None:
        code = child.wait()
        if orphaned.is_set() and folder:
            shutil.rmtree(folder, ignore_errors=True)
        os._exit(code & 0xFF)  # the main thread is blocked in a read

    reaper = threading.Thread(target=reap, daemon=True)
    reaper.start()
    while order := os.read(0, 1):
        if order == b"t":
            child.terminate()
        else:
            stop(child)
            child.kill()
    orphaned.set()
    child.kill()
    reaper.join()


def stop(child: subprocess.Popen[bytes]) -> None:
    """Have a command do nothing more, and what it asked the system for be done.

    A kill ends a write between two of its pages, a stop waits for it. Where the system
    cannot say that a command has stopped, nothing happens.
    """
    if hasattr(os, "waitid"):
        child.send_signal(signal.SIGSTOP)
        with contextlib.suppress(ChildProcessError):  # it has ended
            os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WNOWAIT)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
