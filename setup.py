# SPDX-License-Identifier: Apache-2.0
"""Build the kernel: the modules that are compiled where a C compiler is at hand.

``PULSAR_SPARK_KERNEL`` in the environment decides otherwise: ``python`` compiles
nothing, ``compiled`` makes a failure an error, ``checked`` adds bounds checks to every
index.
"""

import os
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

KERNEL = os.environ.get("PULSAR_SPARK_KERNEL", "")
CHOICES = ("", "python", "compiled", "checked")

#: All, or none: what says which form runs says it of all of them.
MODULES = (
    "pulsar_spark.loops.avro",
    "pulsar_spark.loops.avro_write",
    "pulsar_spark.loops.deliveries",
    "pulsar_spark.loops.digests",
    "pulsar_spark.loops.messages",
    "pulsar_spark.loops.protobuf_values",
    "pulsar_spark.loops.sends",
    "tubemq_spark.loops.chunks",
    "tubemq_spark.loops.messages",
)

if sys.platform == "win32":
    sys.exit("pulsar-spark runs on Linux and macOS; on Windows, in its subsystem Linux")
if KERNEL not in CHOICES:
    sys.exit(f"PULSAR_SPARK_KERNEL is {KERNEL!r}, not one of {CHOICES}")


class BuildKernel(build_ext):
    """Compile it, or say that it is not compiled."""

    def build_extension(self, ext: Extension) -> None:
        """Go on without it, unless it was asked for."""
        if not self.distribution.ext_modules:  # another one has failed
            return
        try:
            super().build_extension(ext)
        except Exception as error:  # whatever a machine without a compiler says
            if KERNEL:
                raise
            # Of an earlier build: it would be taken instead of what the source says.
            for one in self.extensions:
                Path(self.get_ext_fullpath(one.name)).unlink(missing_ok=True)
            self.distribution.ext_modules = []
            sys.stderr.write(
                f"pulsar-spark: the kernel is not compiled ({error}).\n"
                "pulsar-spark: reads work without it, but slower. Install again where "
                "there are a C compiler and this Python's headers.\n"
            )


class NameWheel(bdist_wheel):
    """Name the wheel after what is in it: without the kernel, any Python can use it."""

    def run(self) -> None:
        """Build first: only then is it known."""
        self.run_command("build")
        self.root_is_pure = not self.distribution.has_ext_modules()
        super().run()


def extensions() -> list[Extension]:
    """Return the kernel, as C."""
    if KERNEL == "python":
        return []
    from Cython.Build import cythonize

    is_checked = KERNEL == "checked"
    # What is checked is for tests, which wait for the compiler longer than for it.
    level = "-O0" if is_checked else "-O3"
    kernel = [
        Extension(
            name,
            [f"{name.replace('.', '/')}.py"],
            extra_compile_args=[level, "-g0"],
            optional=not KERNEL,  # nothing that is missing is copied, either
        )
        for name in MODULES
    ]
    return cythonize(
        kernel,
        build_dir="build/kernel",
        quiet=True,
        compiler_directives={
            "language_level": 3,
            "annotation_typing": False,  # their .pxd files give the types
            "boundscheck": is_checked,
            "wraparound": False,
            "initializedcheck": is_checked,
            "cdivision": True,
        },
    )


setup(
    ext_modules=extensions(),
    cmdclass={"build_ext": BuildKernel, "bdist_wheel": NameWheel},
)
