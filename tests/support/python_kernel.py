# SPDX-License-Identifier: Apache-2.0
"""Runs this process with the kernel's Python form, whichever is installed.

A plugin of pytest, ``-p tests.support.python_kernel``. Coverage cannot look into the
compiled form. Processes that Spark starts are not concerned.
"""

from __future__ import annotations

import importlib.abc
import importlib.util
import sys
from importlib.machinery import ModuleSpec
from typing import Any

from tests.support import kernels

SOURCES = {
    name: kernels.source(name)
    for modules in kernels.KERNELS.values()
    for name in modules
}


class Finder(importlib.abc.MetaPathFinder):
    """Finds the sources of the kernel, and nothing else."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> ModuleSpec | None:
        """Return where the kernel's source is."""
        if name not in SOURCES:
            return None
        return importlib.util.spec_from_file_location(name, SOURCES[name])


sys.meta_path.insert(0, Finder())
