# SPDX-License-Identifier: Apache-2.0
"""Writes ``pulsar_spark/builders.py`` from the tables of options."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pulsar_spark.options import OPTIONS
from spark_topics.options.spec import OptionSpec, Scope
from tests.support.products import ROOT

PATH = ROOT / "pulsar_spark" / "builders.py"

#: Types of values by what reads their text. Everything else is text.
_TYPES = {
    "boolean": "bool",
    "integer.<locals>.parse": "int",
    "seconds.<locals>.parse": "int",
    "size.<locals>.parse": "int | str",
    "limit.<locals>.parse_limit": "int | str",
    "duration.<locals>.parse": "int | str",
    "properties": "Mapping[str, str]",
    "topics": "str | Sequence[str]",
    "_metadata_columns": "str | Sequence[str]",
    "_starting_offsets": "str | Mapping[str, Any]",
    "parse_offsets": "str | Mapping[str, Any]",
    "parse_times": "int | str | Mapping[str, Any]",
    "_key_places": "str | Mapping[str, str]",
    "_key_names": "str | Sequence[str]",
}

_HEAD = '''\
# SPDX-License-Identifier: Apache-2.0
"""Options with completion: classes whose fields are the options, made by a generator.

::

    options = pulsar_spark.ReadOptions(
        service_url="pulsar://localhost:6650", topic="public/default/orders"
    )
    spark.read.format("pulsar").options(**options.as_dict()).load()

``make generate-docs`` writes this file from the tables that also make docs/options.md.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any


def _named(name: str) -> Any:
    """Return the field of an option, which is not set."""
    return field(default=None, metadata={"option": name})


@dataclass(frozen=True)
class _Options:
    """Fields that are options."""

    def as_dict(self) -> dict[str, str]:
        """Return the options that are set, for ``.options(**...)`` of Spark."""
        given = ((f.metadata["option"], getattr(self, f.name)) for f in fields(self))
        return {name: _text(value) for name, value in given if value is not None}

    def __repr__(self) -> str:
        # Values may be secrets.
        names = [f.name for f in fields(self) if getattr(self, f.name) is not None]
        return f"{type(self).__name__}({', '.join(names)})"


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return json.dumps(value)
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ",".join(map(str, value))
    return str(value)
'''

_CLASSES = {
    "ReadOptions": (
        Scope.READ,
        "Options of ``spark.read`` and ``spark.readStream``, see docs/options.md.",
    ),
    "WriteOptions": (
        Scope.WRITE,
        "Options of ``df.write`` and ``df.writeStream``, see docs/options.md.",
    ),
}


def field_name(option: str) -> str:
    """Return the field of an option: without the prefix of clients, in snake case."""
    name = option.removeprefix("pulsar.client.").removeprefix("pulsar.")
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name.replace(".", "_"))
    return words.lower()


def type_of(spec: OptionSpec[Any]) -> str:
    """Return the type of an option's values as the annotation of its field."""
    parse = getattr(spec.parse, "func", spec.parse)
    return _TYPES.get(parse.__qualname__, "str")


def _field(spec: OptionSpec[Any]) -> Iterable[str]:
    yield f"    {field_name(spec.name)}: {type_of(spec)} | None = _named("
    yield f'        "{spec.name}"'
    yield "    )"
    # Links of the page mean nothing here.
    doc = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", spec.doc).replace("\\", "\\\\")
    default = f" Default: {spec.default}." if spec.default else ""
    scope = f" For: {spec.scope_text}."
    text = f'"""{doc}{default}{scope}"""'
    yield textwrap.fill(
        text, 88, initial_indent="    ", subsequent_indent="    ",
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip


def generated() -> dict[Path, str]:
    """Return the text of the module, by its path."""
    parts = [_HEAD]
    for name, (scope, doc) in _CLASSES.items():
        specs = [spec for spec in OPTIONS if spec.available and spec.scope & scope]
        lines = [
            "@dataclass(frozen=True, kw_only=True, repr=False)",
            f"class {name}(_Options):",
            f'    """{doc}"""\n',
        ]
        lines += ["\n".join(_field(spec)) for spec in specs]
        parts.append("\n".join(lines))
    return {PATH: _formatted("\n\n".join(parts))}


def _formatted(text: str) -> str:
    """Return the text as ``make format`` leaves it."""
    done = subprocess.run(
        [Path(sys.executable).parent / "ruff", "format", "--stdin-filename", PATH, "-"],
        input=text,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout
