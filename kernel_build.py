# SPDX-License-Identifier: Apache-2.0
"""Build a kernel: the modules of a distribution that are compiled by a C compiler.

``PULSAR_SPARK_KERNEL`` in the environment decides how: ``python`` compiles nothing,
``compiled`` makes a failure an error, ``checked`` adds bounds checks to every index.
Unset, a machine without a compiler gets the modules in Python.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from setuptools import Extension
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

KERNEL = os.environ.get("PULSAR_SPARK_KERNEL", "")
CHOICES = ("", "python", "compiled", "checked")


class BuildKernel(build_ext):
    """Compile all modules of the kernel, or none of them."""

    def build_extension(self, ext: Extension) -> None:
        """Compile a module; without a compiler, fall back to Python for all."""
        if not self.distribution.ext_modules:  # another module has failed
            return
        try:
            super().build_extension(ext)
        except Exception as error:  # whatever a machine without a compiler says
            if KERNEL:
                raise
            # Python would prefer a module that an earlier build has left.
            for extension in self.extensions:
                path = Path(self.get_ext_fullpath(extension.name))
                path.unlink(missing_ok=True)
            self.distribution.ext_modules = []
            name = self.distribution.get_name()
            sys.stderr.write(
                f"{name}: the kernel is not compiled ({error}).\n"
                f"{name}: reads work without the kernel, but slower. Install again "
                "where there are a C compiler and this Python's headers.\n"
            )


class NameWheel(bdist_wheel):
    """Tag a wheel without a kernel for any Python."""

    def run(self) -> None:
        """Build first: the build tells whether there is a kernel."""
        self.run_command("build")
        self.root_is_pure = not self.distribution.has_ext_modules()
        super().run()


def kernel(modules: Sequence[str], include: Sequence[str] = ()) -> dict[str, Any]:
    """Return the arguments of ``setup`` that build a kernel.

    Args:
        modules: Dotted names of the modules, whose sources lie below this folder.
        include: Folders with the ``.pxd`` files of other distributions.
    """
    if sys.platform == "win32":
        sys.exit("pulsar-spark runs on Linux, on macOS, and in Windows' Linux (WSL)")
    if KERNEL not in CHOICES:
        sys.exit(f"PULSAR_SPARK_KERNEL is {KERNEL!r}, not one of {CHOICES}")
    return {
        "ext_modules": _extensions(modules, include),
        "cmdclass": {"build_ext": BuildKernel, "bdist_wheel": NameWheel},
    }


def _extensions(modules: Sequence[str], include: Sequence[str]) -> list[Extension]:
    if KERNEL == "python":
        return []
    from Cython.Build import cythonize

    is_checked = KERNEL == "checked"
    # Tests use the checked form: the compiler takes longer than they do.
    level = "-O0" if is_checked else "-O3"
    extensions = [
        Extension(
            name,
            [f"{name.replace('.', '/')}.py"],
            extra_compile_args=[level, "-g0"],
            optional=not KERNEL,  # a module that failed is not copied, either
        )
        for name in modules
    ]
    compiled: list[Extension] = cythonize(
        extensions,
        build_dir="build/kernel",
        include_path=list(include),
        quiet=True,
        compiler_directives={
            "language_level": 3,
            "annotation_typing": False,  # the .pxd files give the types
            "boundscheck": is_checked,
            "wraparound": False,
            "initializedcheck": is_checked,
            "cdivision": True,
        },
    )
    return compiled
