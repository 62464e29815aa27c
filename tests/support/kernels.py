# SPDX-License-Identifier: Apache-2.0
"""The forms of the kernel side by side: Python, compiled, compiled with checks."""

from __future__ import annotations

import fcntl
import functools
import hashlib
import importlib.machinery
import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from importlib import metadata
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[2]
_FOLDER = ROOT / "pulsar_spark" / "loops"
MODULES = ("avro", "avro_write", "deliveries", "messages", "protobuf_values", "sends")
BUILT = ROOT / "build" / "kernels"
_SUFFIX = f"{sys.implementation.cache_tag}*.so"

#: Without a compiler only the form that needs none can be tested.
CAN_COMPILE = (
    shutil.which(os.environ.get("CC", "cc")) is not None
    and Path(sysconfig.get_paths()["include"], "Python.h").exists()
)
FORMS = ("python", "compiled", "checked")


@functools.cache
def load(form: str, name: str = "messages") -> ModuleType:
    """A module of the kernel as one of its own; what is installed stays as it is.

    Fails where there is no compiler: a form that was not tested must be seen.

    Args:
        form: One of FORMS.
        name: One of MODULES.
    """
    if form == "python":
        path = str(_FOLDER / f"{name}.py")
        return _module(importlib.machinery.SourceFileLoader(_full(name), path))
    assert CAN_COMPILE, f"no C compiler, or no Python.h: {form} cannot be tested"
    # Built once for all processes and runs, as long as it is made of the same.
    built = BUILT / f"{form}-{_fingerprint()}"
    BUILT.mkdir(parents=True, exist_ok=True)
    with (BUILT / f"{form}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not built.exists():
            with tempfile.TemporaryDirectory(dir=BUILT) as folder:
                make = _copy if form == "compiled" and _installed() else _build
                make(form, Path(folder)).rename(built)
    (path,) = map(str, built.glob(f"{name}.*.so"))
    return _module(importlib.machinery.ExtensionFileLoader(_full(name), path))


def _full(name: str) -> str:
    return f"pulsar_spark.loops.{name}"


def _fingerprint() -> str:
    parts = [f"{metadata.version('cython')} {sys.implementation.cache_tag}".encode()]
    for path in (ROOT / "setup.py", *sorted(_FOLDER.glob("*.p*"))):
        parts.append(path.read_bytes())
    return hashlib.sha256(b"".join(parts)).hexdigest()[:16]


def _module(
    loader: importlib.machinery.SourceFileLoader
    | importlib.machinery.ExtensionFileLoader,
) -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        loader.name, loader.path, loader=loader
    )
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def _installed() -> list[Path]:
    """What `make install` compiled, if that is newer than all that it is made of."""
    found = [path for name in MODULES for path in _FOLDER.glob(f"{name}.{_SUFFIX}")]
    if len(found) < len(MODULES):
        return []
    oldest = min(path.stat().st_mtime for path in found)
    sources = (ROOT / "setup.py", *_FOLDER.glob("*.p*"))
    return found if oldest > max(path.stat().st_mtime for path in sources) else []


def _copy(form: str, folder: Path) -> Path:
    """Copy what is installed: of one file a process loads one module only."""
    built = folder / "built"
    built.mkdir()
    for path in _installed():
        shutil.copy(path, built)
    return built


def _build(form: str, folder: Path) -> Path:
    """Build all of its modules; return the folder that has them, and nothing else."""
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    shutil.copytree(
        ROOT / "pulsar_spark",
        folder / "pulsar_spark",
        ignore=shutil.ignore_patterns("*.so", "__pycache__"),
    )
    for module in ("pyspark_pulsar.py", "pyspark_pulsar_py.py"):
        shutil.copy(ROOT / module, folder)
    subprocess.run(
        [sys.executable, "setup.py", "-q", "build_ext", "--inplace"],
        cwd=folder,
        env={**os.environ, "PULSAR_SPARK_KERNEL": form},
        check=True,
    )
    built = folder / "built"
    built.mkdir()
    for name in MODULES:
        (found,) = (folder / "pulsar_spark" / "loops").glob(f"{name}.*.so")
        found.rename(built / found.name)
    return built
