# SPDX-License-Identifier: Apache-2.0
"""Writes ``pulsar_spark/builders.py`` from the tables of options."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterable
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

#: What is above this line of the module is written by hand.
_MARK = "# -- made by `make generate-docs` "

_BOTH = Scope.READ | Scope.WRITE


def _is_of_both(spec: OptionSpec[Any]) -> bool:
    return spec.scope & _BOTH == _BOTH


#: Name, base class, first line of the docstring, and which options are its own.
_CLASSES: tuple[tuple[str, str, str, Callable[[OptionSpec[Any]], bool]], ...] = (
    (
        "ClientOptions",
        "_Options",
        "Options that reads and writes share, such as those of the connection.",
        _is_of_both,
    ),
    (
        "ReadOptions",
        "ClientOptions",
        "Options of ``spark.read`` and ``spark.readStream``, see docs/options.md.",
        lambda spec: bool(spec.scope & Scope.READ) and not _is_of_both(spec),
    ),
    (
        "WriteOptions",
        "ClientOptions",
        "Options of ``df.write`` and ``df.writeStream``, see docs/options.md.",
        lambda spec: bool(spec.scope & Scope.WRITE) and not _is_of_both(spec),
    ),
)


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
    head = PATH.read_text().partition(_MARK)[0]
    parts = [head + _MARK + "-" * (88 - len(_MARK))]
    for name, base, doc, is_own in _CLASSES:
        lines = [
            "@dataclass(frozen=True, kw_only=True, repr=False)",
            f"class {name}({base}):",
            f'    """{doc}"""\n',
        ]
        own = (spec for spec in OPTIONS if spec.available and is_own(spec))
        lines += ["\n".join(_field(spec)) for spec in own]
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
