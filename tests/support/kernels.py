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
from unittest import mock

from tests.support.products import PRODUCTS, ROOT


def _compiled_modules(folder: Path) -> tuple[str, ...]:
    """Return MODULES of a setup.py, which cannot be imported without running."""
    for statement in ast.parse((folder / "setup.py").read_text()).body:
        match statement:
            case ast.Assign(targets=[ast.Name(id="MODULES")], value=value):
                return tuple(ast.literal_eval(value))
    raise AssertionError(f"{folder}/setup.py does not say which modules it compiles")


#: The modules of the kernels, by the folder of their distribution.
KERNELS = {
    folder: _compiled_modules(folder)
    for folder in dict.fromkeys(product.folder for product in PRODUCTS.values())
    if (folder / "setup.py").exists()
}
MODULES = KERNELS[ROOT]
BUILT = ROOT / "build" / "kernels"
_SUFFIX = f"{sys.implementation.cache_tag}*.so"

#: Without a compiler only the form that needs none can be tested.
CAN_COMPILE = (
    shutil.which(os.environ.get("CC", "cc")) is not None
    and Path(sysconfig.get_paths()["include"], "Python.h").exists()
)
FORMS = ("python", "compiled", "checked")

#: Modules whose classes are made of those of another, which are of the same form then.
BASES = {
    "pulsar_spark.loops.json_values": "pulsar_spark.loops.avro",
    "pulsar_spark.loops.requests": "pulsar_spark.loops.sends",
}


@functools.cache
def load(form: str, name: str = "messages") -> ModuleType:
    """A module of the kernel as one of its own; what is installed stays as it is.

    Fails where there is no compiler: a form that was not tested must be seen.

    Args:
        form: One of FORMS.
        name: A module of KERNELS; of Pulsar's the last part is enough.
    """
    name = full(name)
    base = BASES.get(name)
    if base is None:
        return _load(form, name)
    folder, _, last = base.rpartition(".")
    module = load(form, base)
    with (
        mock.patch.dict(sys.modules, {base: module}),
        mock.patch.object(sys.modules[folder], last, module),
    ):
        return _load(form, name)


def _load(form: str, name: str) -> ModuleType:
    if form == "python":
        path = str(source(name))
        return _module(importlib.machinery.SourceFileLoader(name, path))
    assert CAN_COMPILE, f"no C compiler, or no Python.h: {form} cannot be tested"
    # Built once for all processes and runs, as long as it is made of the same.
    home = _home(name)
    built = BUILT / f"{form}-{home.name}-{_fingerprint(home)}"
    BUILT.mkdir(parents=True, exist_ok=True)
    with (BUILT / f"{form}-{home.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not built.exists():
            with tempfile.TemporaryDirectory(dir=BUILT) as folder:
                is_here = form == "compiled" and _installed(home)
                make = _copy if is_here else _build
                make(home, form, Path(folder)).rename(built)
    (path,) = map(str, (built / name).glob("*.so"))
    return _module(importlib.machinery.ExtensionFileLoader(name, path))


def full(name: str) -> str:
    """The whole name of a module."""
    return name if "." in name else f"pulsar_spark.loops.{name}"


def source(name: str) -> Path:
    """Where a module's source is."""
    return _home(name) / f"{name.replace('.', '/')}.py"


def _home(name: str) -> Path:
    """The folder of the distribution that has a module."""
    return PRODUCTS[name.partition(".")[0]].folder


def _sources(home: Path) -> list[Path]:
    """All that a kernel is made of."""
    names = (ROOT / "kernel_build.py", home / "setup.py")
    folders = (home.glob("*/loops/*.p*"), ROOT.glob("spark_topics/loops/*.p*"))
    return [*names, *sorted({*itertools.chain.from_iterable(folders)})]


def _fingerprint(home: Path) -> str:
    parts = [f"{metadata.version('cython')} {sys.implementation.cache_tag}".encode()]
    parts += [path.read_bytes() for path in _sources(home)]
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


def _compiled(home: Path, root: Path) -> dict[str, Path]:
    """What is compiled below a folder of the modules of a distribution."""
    return {
        name: path
        for name in KERNELS[home]
        for path in root.glob(f"{name.replace('.', '/')}.{_SUFFIX}")
    }


def _installed(home: Path) -> dict[str, Path]:
    """What `make install` compiled, if that is newer than all that it is made of."""
    found = _compiled(home, home)
    if len(found) < len(KERNELS[home]):
        return {}
    oldest = min(path.stat().st_mtime for path in found.values())
    newest = max(path.stat().st_mtime for path in _sources(home))
    return found if oldest > newest else {}


def _copy(home: Path, form: str, folder: Path) -> Path:
    """Copy what is installed: of one file a process loads one module only."""
    return _collected(_installed(home), folder)


def _collected(modules: dict[str, Path], folder: Path) -> Path:
    built = folder / "built"
    for name, path in modules.items():
        (built / name).mkdir(parents=True)
        shutil.copy(path, built / name)
    return built


def _build(home: Path, form: str, folder: Path) -> Path:
    """Build all of its modules; return the folder that has them, and nothing else."""
    for name in ("setup.py", "kernel_build.py", "pyproject.toml"):
        shutil.copy(home / name, folder)
    for name in ("README.md", "LICENSE"):
        shutil.copy(home / name, folder)
    packages = [name for name, one in PRODUCTS.items() if one.folder == home]
    parts = [(home / package, folder / package) for package in packages]
    if home != ROOT:
        parts.append((home / "include", folder / "include"))
    ignored = shutil.ignore_patterns("*.so", "__pycache__")
    for source, target in parts:
        shutil.copytree(source, target, ignore=ignored)
    for package in packages:
        for module in PRODUCTS[package].shims:
            shutil.copy(home / f"{module}.py", folder)
    subprocess.run(
        [sys.executable, "setup.py", "-q", "build_ext", "--inplace"],
        cwd=folder,
        env={**os.environ, "PULSAR_SPARK_KERNEL": form},
        check=True,
    )
    found = _compiled(home, folder)
    assert len(found) == len(KERNELS[home]), found
    return _collected(found, folder)
