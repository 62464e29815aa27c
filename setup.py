"""Builds the kernel: the one module that is compiled where a C compiler is at hand.

``PULSAR_SPARK_KERNEL`` in the environment decides otherwise: ``python`` compiles
nothing, ``compiled`` makes a failure an error, ``checked`` adds bounds checks to every
index.
"""

import os
import sys

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

KERNEL = os.environ.get("PULSAR_SPARK_KERNEL", "")
CHOICES = ("", "python", "compiled", "checked")

if KERNEL not in CHOICES:
    sys.exit(f"PULSAR_SPARK_KERNEL is {KERNEL!r}, not one of {CHOICES}")


class BuildKernel(build_ext):
    """Compiles it, or says that it did not."""

    def build_extension(self, ext: Extension) -> None:
        """Goes on without it, unless it was asked for."""
        try:
            super().build_extension(ext)
        except Exception as error:  # whatever a machine without a compiler says
            if KERNEL:
                raise
            sys.stderr.write(
                f"pulsar-spark: the kernel is not compiled ({error}).\n"
                "pulsar-spark: reads work without it, but slower. Install again where "
                "there are a C compiler and this Python's headers.\n"
            )


def extensions() -> list[Extension]:
    """The kernel, as C."""
    if KERNEL == "python":
        return []
    from Cython.Build import cythonize

    kernel = Extension(
        "pulsar_spark.wire.messages",
        ["pulsar_spark/wire/messages.py"],
        extra_compile_args=[] if sys.platform == "win32" else ["-O3", "-g0"],
        optional=not KERNEL,  # nothing that is missing is copied, either
    )
    is_checked = KERNEL == "checked"
    return cythonize(
        [kernel],
        build_dir="build/kernel",
        quiet=True,
        compiler_directives={
            "language_level": 3,
            "annotation_typing": False,  # messages.pxd gives the types
            "boundscheck": is_checked,
            "wraparound": False,
            "initializedcheck": is_checked,
            "cdivision": True,
        },
    )


setup(ext_modules=extensions(), cmdclass={"build_ext": BuildKernel})
