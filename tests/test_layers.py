"""The layers of the package, read off its imports.

Each module may import what its row of ``LAYERS`` names, and nothing else. Imports
within functions count, and so do the ones for types alone.
"""

from __future__ import annotations

import ast
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = "pulsar_spark"


@dataclass(frozen=True)
class Layer:
    """What the modules of one part may import.

    Attributes:
        ours: Parts of this package; a part may always import itself.
        third_party: Packages of others.
        not_stdlib: Standard modules that are out of bounds; all others are allowed.
    """

    ours: tuple[str, ...] = ()
    third_party: tuple[str, ...] = ()
    not_stdlib: tuple[str, ...] = ()


_NETWORK = ("socket", "ssl", "selectors", "asyncio", "http", "urllib.request")
_CLOCK = ("time", "threading", "concurrent", "multiprocessing")

#: From the bottom to the top. The longest name that fits a module is its row.
LAYERS = {
    "_version": Layer((), (), _NETWORK + _CLOCK),
    "errors": Layer((), (), _NETWORK + _CLOCK),
    "logs": Layer(("errors",), (), _NETWORK + _CLOCK),
    "message_id": Layer((), (), _NETWORK + _CLOCK),
    "topics": Layer(("errors",), (), _NETWORK + _CLOCK),
    "offsets": Layer(("errors", "message_id", "topics"), (), _NETWORK + _CLOCK),
    "options": Layer(
        ("errors", "message_id", "topics", "offsets"), (), _NETWORK + _CLOCK
    ),
    "plan": Layer(
        ("errors", "message_id", "topics", "offsets", "options"), (), _NETWORK + _CLOCK
    ),
    "stream_offsets": Layer(
        ("errors", "message_id", "topics", "offsets", "plan"), (), _NETWORK + _CLOCK
    ),
    "split": Layer(("message_id", "plan"), (), _NETWORK + _CLOCK),
    "admission": Layer((), (), _NETWORK + _CLOCK),
    "commit_log": Layer(("errors",), (), _NETWORK + _CLOCK),
    "commit_protocol": Layer(("errors", "commit_log"), (), _NETWORK + _CLOCK),
    "wire": Layer(("errors", "message_id"), ("google", "crc32c"), _NETWORK + _CLOCK),
    "wire.messages": Layer(("errors",), (), _NETWORK + _CLOCK),
    "wire.pulsar_api_pb2": Layer((), ("google",), _NETWORK + _CLOCK),
    "wire.compression": Layer(
        ("errors",), ("google", "crc32c", "lz4", "pyarrow"), _NETWORK + _CLOCK
    ),
    "arrow": Layer(
        ("errors", "message_id", "options", "wire"), ("pyarrow",), _NETWORK + _CLOCK
    ),
    "client": Layer(
        (
            "errors",
            "message_id",
            "topics",
            "offsets",
            "options",
            "plan",
            "stream_offsets",
            "split",
            "admission",
            "commit_log",
            "commit_protocol",
            "wire",
        )
    ),
    "spark": Layer(
        (
            "errors",
            "message_id",
            "topics",
            "offsets",
            "options",
            "plan",
            "stream_offsets",
            "wire",
            "client",
            "arrow",
        ),
        ("pyspark", "pyarrow"),
    ),
    # The package's face, and the module through which Spark finds it.
    "__init__": Layer(
        (
            "errors",
            "logs",
            "message_id",
            "topics",
            "offsets",
            "options",
            "wire.messages",
            "spark",
        )
    ),
    "pyspark_pulsar": Layer(("__init__",)),
}


def modules() -> list[str]:
    """Every module, by its dotted name without the package, ``__init__`` included."""
    root = ROOT / PACKAGE
    paths = sorted(p.relative_to(root) for p in root.rglob("*.py"))
    return [".".join(p.with_suffix("").parts) for p in paths] + ["pyspark_pulsar"]


def row(module: str) -> str | None:
    """The row of the table for a module: its own name, or the nearest folder's."""
    parts = module.split(".")
    for size in range(len(parts), 0, -1):
        if (name := ".".join(parts[:size])) in LAYERS:
            return name
    return None


def imported(source: str, module: str) -> list[tuple[int, str]]:
    """Line and absolute dotted name of everything that a source text imports.

    ``from a import b`` gives ``a.b``: whether b is a module is not known here.
    """
    package = [PACKAGE, *module.split(".")][:-1]
    found: list[tuple[int, str]] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            found += [(node.lineno, f"{base}.{alias.name}") for alias in node.names]
    return found


def violations(source: str, module: str) -> list[str]:
    """One sentence for each import that the module's row does not allow."""
    name = row(module)
    if name is None:
        return [f"{module} has no row in LAYERS of tests/test_layers.py: add one."]
    layer = LAYERS[name]
    problems = []
    for line, target in imported(source, module):
        reason = _reason(layer, name, target)
        if reason:
            problems.append(f"{module}, line {line}, imports {target}: {reason}.")
    return problems


def _reason(layer: Layer, name: str, target: str) -> str:
    top = target.split(".")[0]
    if target == f"{PACKAGE}._version.__version__":
        return ""  # a fact, not a part
    if top == PACKAGE:
        part = row(target.partition(".")[2]) or "__init__"
        own = part.split(".")[0] == name.split(".")[0]
        if own or part in layer.ours or part.split(".")[0] in layer.ours:
            return ""
        return f"{name} may import of this package {_list(layer.ours)}, not {part}"
    if top in sys.stdlib_module_names:
        for banned in layer.not_stdlib:
            if target == banned or target.startswith(f"{banned}."):
                return f"{name} knows no {banned}, it must be given what it needs"
        return ""
    if top in layer.third_party:
        return ""
    return f"{name} may import of other packages {_list(layer.third_party)}"


def _list(names: tuple[str, ...]) -> str:
    return ", ".join(names) or "nothing"


@pytest.mark.parametrize("module", modules())
def test_imports(module: str) -> None:
    """A module imports only what its layer allows."""
    folder = ROOT if module == "pyspark_pulsar" else ROOT / PACKAGE
    source = folder.joinpath(*module.split(".")).with_suffix(".py").read_text()
    problems = violations(source, module)
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize(
    ("module", "source", "problem"),
    [
        ("errors", "from pulsar_spark.topics import T", "errors may import"),
        ("offsets", "import pyarrow.compute", "offsets may import of other"),
        ("wire.frames", "import socket", "wire knows no socket"),
        ("wire.frames", "def f():\n    import time", "line 2"),
        ("wire.frames", "from .compression import x", ""),
        ("wire.frames", "from ..client.pool import x", "not client"),
        ("wire.frames", "import lz4.block", "wire may import of other"),
        ("wire.compression", "import lz4.block", ""),
        ("wire.compression", "import pyarrow", ""),
        ("wire.entries", "from concurrent.futures import Future", "no concurrent"),
        ("client.pool", "import pyarrow", "client may import of other"),
        ("client.pool", "import socket, ssl, threading", ""),
        ("client.pool", "from pulsar_spark import spark", "not spark"),
        ("arrow.decode", "from pulsar_spark.client import pool", "not client"),
        ("spark.reader", "import pyspark.sql", ""),
        ("spark.reader", "import pandas", "spark may import of other"),
        ("plan", "import pulsar_spark", "not __init__"),
        ("client.pool", "from pulsar_spark._version import __version__", ""),
        ("__init__", "from pulsar_spark.spark.datasource import D", ""),
        ("novelty", "import os", "has no row"),
    ],
)
def test_the_check_itself(module: str, source: str, problem: str) -> None:
    """The check finds what the table forbids and lets pass what it allows."""
    found = violations(source, module)
    assert len(found) == bool(problem)
    assert problem in "".join(found)
