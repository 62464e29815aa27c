"""The forms of the kernel side by side: Python, compiled, compiled with checks."""

from __future__ import annotations

import functools
import importlib.machinery
import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[2]
_NAME = "pulsar_spark.wire.messages"
_SOURCE = ROOT / "pulsar_spark" / "wire" / "messages.py"

#: Without a compiler only the form that needs none can be tested.
CAN_COMPILE = (
    shutil.which(os.environ.get("CC", "cc")) is not None
    and Path(sysconfig.get_paths()["include"], "Python.h").exists()
)
FORMS = ("python", "compiled", "checked")


@functools.cache
def load(form: str) -> ModuleType:
    """The kernel as a module of its own; what is installed stays as it is.

    Fails where there is no compiler: a form that was not tested must be seen.
    """
    if form == "python":
        loader = importlib.machinery.SourceFileLoader(_NAME, str(_SOURCE))
        return _module(loader)
    assert CAN_COMPILE, f"no C compiler, or no Python.h: {form} cannot be tested"
    with tempfile.TemporaryDirectory(prefix=f"pulsar-spark-kernel-{form}-") as folder:
        built = _build(form, Path(folder))
        # What is loaded may be deleted.
        return _module(importlib.machinery.ExtensionFileLoader(_NAME, str(built)))


def _module(
    loader: importlib.machinery.SourceFileLoader
    | importlib.machinery.ExtensionFileLoader,
) -> ModuleType:
    spec = importlib.util.spec_from_file_location(_NAME, loader.path, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def _build(form: str, folder: Path) -> Path:
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    shutil.copytree(
        ROOT / "pulsar_spark",
        folder / "pulsar_spark",
        ignore=shutil.ignore_patterns("*.so", "__pycache__"),
    )
    shutil.copy(ROOT / "pyspark_pulsar.py", folder)
    subprocess.run(
        [sys.executable, "setup.py", "-q", "build_ext", "--inplace"],
        cwd=folder,
        env={**os.environ, "PULSAR_SPARK_KERNEL": form},
        check=True,
    )
    (found,) = (folder / "pulsar_spark" / "wire").glob("messages.*.so")
    return found
