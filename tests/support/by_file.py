# SPDX-License-Identifier: Apache-2.0
"""Which tests stay in one process, where several share a run.

What the tests of a file need besides the broker and Spark of their process, a cluster
or a broker with other settings, takes seconds of CPU to start. So one process runs all
of a file, and all of a folder where its files share such a broker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pytest

#: Folders whose files share a broker, by the fixtures of a ``conftest.py`` in there.
FOLDERS = ("tests/broker/configured/", "tests/broker/secured/")


def unit_of(test: str) -> str:
    """Return what a test belongs to: tests of one unit follow one another.

    Args:
        test: Its id, ``tests/folder/test_file.py::...``.

    Returns:
        A file, or a folder.
    """
    folder = next((one for one in FOLDERS if test.startswith(one)), "")
    return folder or test.partition("::")[0]


def make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Return what gives whole units to the processes of xdist.

    Those that wait for a JVM come first. Every second process begins at the other end:
    beside what waits there is something that computes.
    """
    from xdist.scheduler import LoadFileScheduling

    class ByUnit(LoadFileScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return unit_of(nodeid)

        def _assign_work_unit(self, node: Any) -> None:
            if self.nodes.index(node) % 2:
                self.workqueue.move_to_end(next(reversed(self.workqueue)), last=False)
            super()._assign_work_unit(node)

    return ByUnit(config, log)
