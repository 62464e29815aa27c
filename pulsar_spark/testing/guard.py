# SPDX-License-Identifier: Apache-2.0
"""Run a command that must not outlive the process that started it.

::

    test run ──pipe──▶ guard ──starts, signals, reaps──▶ broker

The guard is a process that reads orders from its standard input. End of file means that
the test run has ended, ``kill -9`` included: the guard then kills the command at once.
Two bytes are orders: ``t`` asks the command to end, ``k`` kills the command, but not in
the middle of a write. Only the guard signals the command, and only the guard reaps the
command. So no signal reaches another process that has the same id by now. Pipes work on
macOS as well, other than ``prctl``. SIGTERM to the guard, as of a shutdown that ends
all processes, is handed on to the command.

The first argument names a folder of the command, "" for none. The guard removes the
folder when the test run is gone. The guard writes the process id of the command to its
standard output, one line, and exits with the return code of the command.
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
    """Start ``command``, report its process id, and follow orders until the end."""
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=sys.stderr)
    signal.signal(signal.SIGTERM, lambda *_: child.terminate())
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
    """Stop a command after the system call that is under way.

    A kill can end a write between two pages; a stop waits for the whole write. Nothing
    happens on systems that cannot report a stop.
    """
    if hasattr(os, "waitid"):
        child.send_signal(signal.SIGSTOP)
        with contextlib.suppress(ChildProcessError):  # the command has ended
            os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WNOWAIT)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
