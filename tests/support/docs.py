# SPDX-License-Identifier: Apache-2.0
"""The documents for people, and the parts of them that are generated.

Markers such as ``<!-- options: begin -->`` and ``<!-- options: end -->`` enclose what
``make generate-docs`` writes: tables of what the code says, and the figures of the runs
that ``ARGS=--save`` of ``make bench``, ``make bench-peer``, ``make bench-rivals``,
``make bench-pinned``, ``make coverage``, ``make test-matrix`` and ``make soak`` left in
docs/.
"""

from __future__ import annotations

import ast
import base64
import importlib
import inspect
import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from pulsar_spark import errors
from pulsar_spark.options.others import (
    DATABRICKS,
    KAFKA_CLIENTS,
    KAFKA_SOURCE,
    SCALA,
    other_options_markdown,
)
from spark_topics.errors import TopicsError
from tests.bench.report import Document
from tests.bench.rivals.costs import markdown as costs_table
from tests.bench.rivals.results import markdown as rivals_table
from tests.matrix import cells
from tests.soak.report import Report
from tests.support import builders, rooms
from tests.support.column_tables import columns_of_a_read, columns_of_a_write
from tests.support.option_pages import options_page
from tests.support.products import PRODUCTS, ROOT, SIBLINGS
from tests.support.schema_tables import avro_types, schemas
from tests.test_layers import PACKAGES

DOCS = ROOT / "docs"

#: A page that is read from top to bottom, and the notebook that is made of it.
TUTORIAL = DOCS / "tutorial.md"
NOTEBOOK = ROOT / "examples" / "orders.ipynb"

#: The page of each sibling, whose snippets its own tests run.
SIBLING_PAGES = tuple(one.folder / "README.md" for one in SIBLINGS.values())

#: What people read, in the order in which they are likely to.
DOCUMENTS = (
    ROOT / "README.md",
    *sorted(DOCS.glob("*.md")),
    *SIBLING_PAGES,
    ROOT / "CONTRIBUTING.md",
    ROOT / "SECURITY.md",
)

#: Links to files of the project that must work outside of it, too, begin like this.
REPOSITORY = "https://github.com/pulsar-spark/pulsar-spark"
RAW = "https://raw.githubusercontent.com/pulsar-spark/pulsar-spark/main"

_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_GENERATED = re.compile(r"^<!-- ([\w-]+): begin -->.*?^<!-- \1: end -->$", re.M | re.S)
_LINK = re.compile(r"\]\(([^)\s]+)\)|^\[[^\]]+\]: (\S+)$", re.MULTILINE)


def replace_between(text: str, name: str, content: str) -> str:
    """Return the text with ``content`` between the markers of this name.

    Raises:
        ValueError: A marker is missing.
    """
    begin, end = f"<!-- {name}: begin -->\n", f"<!-- {name}: end -->\n"
    first, last = text.index(begin) + len(begin), text.index(end)
    return f"{text[:first]}\n{content.strip()}\n\n{text[last:]}"


def generated() -> dict[Path, str]:
    """Return the text of each file that is generated, or has generated parts."""
    parts = {
        "architecture": {
            "doors": _doors(),
            "rooms": _rooms("pulsar_spark"),
            "shared-rooms": _rooms("spark_topics"),
            "coverage": rooms.table(rooms.saved()),
        },
        "columns": {
            "columns-of-a-read": columns_of_a_read(),
            "columns-of-a-write": columns_of_a_write(),
        },
        "compatibility": {"compatibility": _compatibility()},
        "errors": {"errors": errors_table(errors)},
        "moving-from-databricks": {"options": other_options_markdown(DATABRICKS)},
        "moving-from-kafka": {
            "options": other_options_markdown(KAFKA_SOURCE),
            "client-options": other_options_markdown(KAFKA_CLIENTS),
        },
        "moving-from-scala": {"options": other_options_markdown(SCALA)},
        "options": {"options": options_page()},
        "soak": {"soak": Report.read(DOCS / "soak.json").markdown()},
        "schemas": {"schemas": schemas(), "avro-types": avro_types()},
        "speed": {
            "bench-rivals": rivals_table(DOCS / "bench-rivals.json"),
            "bench-pinned": costs_table(DOCS / "bench-pinned.json"),
            "bench": Document.read(DOCS / "bench.json").markdown(),
            "bench-peer": Document.read(DOCS / "bench-peer.json").markdown(),
        },
    }
    pages = {DOCS / f"{page}.md": contents for page, contents in parts.items()}
    for sibling in SIBLINGS.values():
        module = importlib.import_module(f"{sibling.tests_package}.page")
        pages[sibling.folder / "README.md"] = module.parts()
    found = {}
    for path, contents in pages.items():
        text = path.read_text()
        for name, content in contents.items():
            text = replace_between(text, name, content)
        found[path] = text
    found[NOTEBOOK] = notebook(TUTORIAL.read_text())
    return found | builders.generated()


def notebook(page: str) -> str:
    """Return a page as a Jupyter notebook: its blocks of Python are cells.

    A block of text, or a picture, right behind such a block is the output of the cell.
    Links lead to the project.
    """
    page = re.sub(r"\]\((?=[\w-]+\.md)", f"]({REPOSITORY}/blob/main/docs/", page)
    cells: list[dict[str, Any]] = []
    for number, text in enumerate(
        re.split(r"^```python\n(.*?)^```$", page, flags=re.M | re.S)
    ):
        if output := _OUTPUT.match(text):
            cells[-1]["outputs"] = [_output(*output.groups())]
            text = text[output.end() :]
        source = text.strip().splitlines(keepends=True)
        if source:
            cell: dict[str, Any] = {"id": f"cell-{number}", "metadata": {}}
            cell |= {"cell_type": "markdown", "source": source}
            if number % 2:
                cell |= {"cell_type": "code", "execution_count": None, "outputs": []}
            cells.append(cell)
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    whole = {
        "cells": cells,
        "metadata": {"kernelspec": kernel, "language_info": {"name": "python"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(whole, indent=1, ensure_ascii=False, sort_keys=True) + "\n"


#: What a block of Python prints, or draws: its text, or the name of its picture.
_OUTPUT = re.compile(r"\n\n(?:```text\n(.*?)^```$|!\[[^]]*\]\((\S+)\)$)", re.M | re.S)


def _output(text: str | None, picture: str) -> dict[str, Any]:
    """Return the output of a notebook's cell."""
    if text is not None:
        lines = text.splitlines(keepends=True)
        return {"output_type": "stream", "name": "stdout", "text": lines}
    data = base64.b64encode((DOCS / picture).read_bytes()).decode()
    return {
        "output_type": "display_data",
        "data": {"image/png": data},
        "metadata": {},
    }


def conditions(module: ModuleType = errors) -> dict[str, type[TopicsError]]:
    """Return every error condition and the class that has it, in the module's order.

    Args:
        module: Of the errors of one messaging system, the first of which is their root.
    """
    found = {
        value.condition: value
        for value in vars(module).values()
        if isinstance(value, type)
        and issubclass(value, TopicsError)
        and value.__module__ == module.__name__
        and "condition" in vars(value)
    }
    del found[next(iter(found))]
    return found


def meaning_and_cure(error: type[TopicsError]) -> tuple[str, str]:
    """Return what the docstring of an error says before and after "Cure:"."""
    paragraphs = (inspect.getdoc(error) or "").split("\n\n")
    texts = [" ".join(text.split()).replace("``", "`") for text in paragraphs]
    cures = [text for text in texts if text.startswith("Cure: ")]
    assert len(cures) == 1, f"{error.__name__}: a paragraph `Cure: ...` is missing"
    meaning = " ".join(texts[: texts.index(cures[0])])
    return meaning, cures[0].removeprefix("Cure: ")


def _compatibility() -> str:
    """Write what the cells of the matrix came to as Markdown tables."""
    return cells.markdown(cells.read(DOCS / "compatibility.json"))


def errors_table(module: ModuleType) -> str:
    """Write the errors as a Markdown table."""
    lines = ["| condition, exception | meaning | cure |", "|---|---|---|"]
    for condition, error in conditions(module).items():
        cells = (f"`{condition}`, `{error.__name__}`", *meaning_and_cure(error))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


#: What few modules may import, by what it lets them do.
_DOORS = {
    "open sockets": ("socket",),
    "speak HTTP": ("http", "urllib.request", "urllib.error"),
    "import pyspark": ("pyspark",),
}


def _doors() -> str:
    """Write which modules import what opens a door to the outside, as a table."""
    lines = ["| modules that | are |", "|---|---|"]
    for what, names in _DOORS.items():
        modules = [
            f"`{path.relative_to(product.folder)}`"
            for package, product in PRODUCTS.items()
            for path in sorted((product.folder / package).rglob("*.py"))
            if any(
                name == one or name.startswith(f"{one}.")
                for name in _imports(path)
                for one in names
            )
        ]
        lines.append(f"| {what} | {', '.join(modules)} |")
    return "\n".join(lines)


def _imports(path: Path) -> set[str]:
    """Return the modules that a file imports, also within functions."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module)
    return names


def _rooms(package: str) -> str:
    """Write who may import what as a Markdown table: the folders of a package."""
    lines = [
        "| room | may import of ours | and of others | never |",
        "|---|---|---|---|",
    ]
    layers = PACKAGES[package]
    for name in reversed(layers):
        if (ROOT / package / name).is_dir():
            layer = layers[name]
            banned = {"socket": "sockets", "time": "clocks", "threading": "threads"}
            never = (
                word for module, word in banned.items() if module in layer.not_stdlib
            )
            cells = (
                f"`{name}`",
                ", ".join(f"`{part}`" for part in layer.ours),
                ", ".join(f"`{package}`" for package in layer.third_party),
                ", ".join(never),
            )
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def snippets_of(document: Path, section: str) -> list[str]:
    """Return the Python blocks of one section, ``## section``, of a document."""
    text = document.read_text()
    body = re.split(rf"^## {re.escape(section)}$", text, maxsplit=1, flags=re.M)[1]
    body = re.split(r"^## ", body, maxsplit=1, flags=re.M)[0]
    return re.findall(r"^```python\n(.*?)^```", body, re.M | re.S)


def commands() -> list[list[str]]:
    """Return the commands of ours that documents show, as a shell would split them."""
    found = {}
    for document in DOCUMENTS:
        for block in re.findall(
            r"^```sh\n(.*?)^```", document.read_text(), re.M | re.S
        ):
            for line in block.splitlines():
                if line.startswith("pulsar-spark "):
                    found[line] = shlex.split(line)[1:]
    return list(found.values())


def without_code(text: str) -> str:
    """Return the text without its fenced blocks of code."""
    return _FENCE.sub("", text)


def prose(text: str) -> str:
    """Return the text without blocks of code, tables, pictures and generated parts."""
    text = _GENERATED.sub("", without_code(text))
    return re.sub(r"^(\||!?\[).*$", "", text, flags=re.MULTILINE)


def anchors(text: str) -> set[str]:
    """Return the anchors of a text's headings, as GitHub makes them."""
    found: set[str] = set()
    for heading in re.findall(r"^#+ (.+)$", without_code(text), re.MULTILINE):
        slug = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        number = sum(
            re.fullmatch(rf"{slug}(-\d+)?", other) is not None for other in found
        )
        found.add(f"{slug}-{number}" if number else slug)
    return found


def links(text: str) -> list[str]:
    """Return the targets of a text's links and pictures."""
    plain = re.sub(r"`[^`]*`", "``", without_code(text))
    return [inline or reference for inline, reference in _LINK.findall(plain)]


def dead_links(document: Path) -> Iterator[str]:
    """Find links that lead to no file, or to no heading, of the project.

    Links to other sites are not followed.
    """
    for link in links(document.read_text()):
        target, _, anchor = link.partition("#")
        for prefix in (f"{REPOSITORY}/blob/main", f"{REPOSITORY}/tree/main", RAW):
            if target.startswith(f"{prefix}/"):
                file = ROOT / target.removeprefix(f"{prefix}/")
                break
        else:
            if "://" in target or target.startswith("mailto:"):
                continue
            file = document.parent / target if target else document
        if not file.exists():
            yield f"{link}: no such file"
        elif (
            anchor and file.suffix == ".md" and anchor not in anchors(file.read_text())
        ):
            yield f"{link}: no such heading"


def main() -> None:
    """Renew the generated parts."""
    for document, text in generated().items():
        document.write_text(text)


if __name__ == "__main__":
    main()
