# SPDX-License-Identifier: Apache-2.0
"""The forms of the kernel side by side: Python, compiled, compiled with checks."""

from __future__ import annotations

import ast
import fcntl
import functools
import hashlib
import importlib.machinery
import importlib.util
import itertools
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


def _compiled_modules() -> tuple[str, ...]:
    """What setup.py calls so; it cannot be imported without that it runs."""
    for statement in ast.parse((ROOT / "setup.py").read_text()).body:
        match statement:
            case ast.Assign(targets=[ast.Name(id="MODULES")], value=value):
                return tuple(ast.literal_eval(value))
    raise AssertionError("setup.py does not say which modules it compiles")


#: The modules of the kernel.
MODULES = _compiled_modules()
_PACKAGES = ("pulsar_spark", "spark_topics", "tubemq_spark")
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
        name: One of MODULES; of Pulsar's the last part is enough.
    """
    name = full(name)
    if form == "python":
        path = str(source(name))
        return _module(importlib.machinery.SourceFileLoader(name, path))
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
    (path,) = map(str, (built / name).glob("*.so"))
    return _module(importlib.machinery.ExtensionFileLoader(name, path))


def full(name: str) -> str:
    """The whole name of a module."""
    return name if "." in name else f"pulsar_spark.loops.{name}"


def source(name: str) -> Path:
    """Where a module's source is."""
    return ROOT / f"{name.replace('.', '/')}.py"


def _sources() -> list[Path]:
    """All that the kernel is made of."""
    parts = (ROOT.glob(f"{package}/loops/*.p*") for package in _PACKAGES)
    return [ROOT / "setup.py", *sorted(itertools.chain.from_iterable(parts))]


def _fingerprint() -> str:
    parts = [f"{metadata.version('cython')} {sys.implementation.cache_tag}".encode()]
    parts += [path.read_bytes() for path in _sources()]
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


def _compiled(root: Path) -> dict[str, Path]:
    """What is compiled of the modules below a folder."""
    return {
        name: path
        for name in MODULES
        for path in root.glob(f"{name.replace('.', '/')}.{_SUFFIX}")
    }


def _installed() -> dict[str, Path]:
    """What `make install` compiled, if that is newer than all that it is made of."""
    found = _compiled(ROOT)
    if len(found) < len(MODULES):
        return {}
    oldest = min(path.stat().st_mtime for path in found.values())
    newest = max(path.stat().st_mtime for path in _sources())
    return found if oldest > newest else {}


def _copy(form: str, folder: Path) -> Path:
    """Copy what is installed: of one file a process loads one module only."""
    return _collected(_installed(), folder)


def _collected(modules: dict[str, Path], folder: Path) -> Path:
    built = folder / "built"
    for name, path in modules.items():
        (built / name).mkdir(parents=True)
        shutil.copy(path, built / name)
    return built


def _build(form: str, folder: Path) -> Path:
    """Build all of its modules; return the folder that has them, and nothing else."""
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    for package in _PACKAGES:
        shutil.copytree(
            ROOT / package,
            folder / package,
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
    found = _compiled(folder)
    assert len(found) == len(MODULES), found
    return _collected(found, folder)
