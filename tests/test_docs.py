# SPDX-License-Identifier: Apache-2.0
"""The documents say what is true: tables are current, snippets run, links lead on."""

from __future__ import annotations

import ast
import re
import textwrap
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pulsar_spark.cli.main import parser
from pulsar_spark.options import METADATA_COLUMNS_ALL
from tests.support import docs
from tests.support.docs import DOCS, DOCUMENTS, REPOSITORY, ROOT
from tests.support.key_pairs import rsa_pair
from tests.support.products import PRODUCTS
from tests.test_examples import send

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQueryListener, StreamingQueryManager

    from pulsar_spark.testing.admin import Admin

README = (ROOT / "README.md").read_text()

each_document = pytest.mark.parametrize("document", DOCUMENTS, ids=lambda p: p.name)


def test_generated_parts_are_current() -> None:
    """Between markers is what the code and the saved runs say."""
    for document, text in docs.generated().items():
        assert document.read_text() == text, f"{document.name}: make generate-docs"


def test_every_column_is_listed() -> None:
    """Each metadata column has a row in the table of columns."""
    columns = (DOCS / "columns.md").read_text()
    for name in METADATA_COLUMNS_ALL:
        assert re.search(rf"^\| `{name}`", columns, re.MULTILINE), name


def test_every_condition_is_listed() -> None:
    """Each error condition has a row in the table of errors, with a cure."""
    text = (DOCS / "errors.md").read_text()
    for condition, error in docs.conditions().items():
        meaning, cure = docs.meaning_and_cure(error)
        assert f"| `{condition}`, `{error.__name__}` | {meaning} | {cure} |" in text


# -- Files and links -----------------------------------------------------------------


@each_document
def test_files_named_exist(document: Path) -> None:
    """Each path of the project that a document names is there."""
    named = re.findall(
        r"`((?:pulsar_spark|spark_topics|tests|examples|proto|docs|siblings)/[\w/.-]+)`",
        document.read_text(),
    )
    for path in named:
        assert (ROOT / path).exists(), path


@each_document
def test_links_lead_somewhere(document: Path) -> None:
    """Each link within the project leads to a file, and to a heading of it."""
    assert list(docs.dead_links(document)) == []


@pytest.mark.parametrize(
    ("link", "problem"),
    [
        ("reading.md", ""),
        ("reading.md#part-of-a-topic", ""),
        ("reading.md#part-of-it", "no such heading"),
        ("nothing.md", "no such file"),
        ("#a-heading", ""),
        ("#a-heading-1", ""),
        ("#another", "no such heading"),
        (f"{REPOSITORY}/blob/main/docs/options.md", ""),
        (f"{REPOSITORY}/blob/main/docs/nothing.md", "no such file"),
        (f"{REPOSITORY}/tree/main/examples", ""),
        (f"{docs.RAW}/docs/bench.svg", ""),
        (f"{REPOSITORY}/issues", ""),
        ("https://pulsar.apache.org/docs", ""),
    ],
)
def test_the_search_for_dead_links(tmp_path: Path, link: str, problem: str) -> None:
    """Links in brackets and below them are checked, those in code are not."""
    (tmp_path / "reading.md").write_text("# Part of a topic\n")
    page = tmp_path / "page.md"
    page.write_text("## A `heading`\n```\n[a](dead)\n```\n## A heading\n`[b](dead)`\n")
    assert list(docs.dead_links(page)) == []
    for text in (f"[a]({link})", f"![a]({link})", f"[a]: {link}"):
        page.write_text(f"## A `heading`\n## A heading\n{text}\n")
        found = list(docs.dead_links(page))
        assert found == ([f"{link}: {problem}"] if problem else [])


def test_the_readme_works_elsewhere() -> None:
    """Package indexes show it, too, where relative links lead nowhere."""
    assert [link for link in docs.links(README) if "://" not in link] == []


def test_the_project_has_one_address() -> None:
    """Where pyproject.toml names the repository, it is the one that links name."""
    named = re.findall(
        r"https://github\.com/[\w-]+/[\w-]+", (ROOT / "pyproject.toml").read_text()
    )
    assert set(named) <= {REPOSITORY}


# -- Form ----------------------------------------------------------------------------


def test_the_readme_is_short() -> None:
    """It is what a visitor reads in one go; pages have the rest."""
    assert len(README.encode()) <= 12_000


def test_changes_have_a_kind() -> None:
    """`make changelog` would pass over others, or leave them where they are."""
    names = {path.name for path in (ROOT / "changes").iterdir()} - {"README.md"}
    kinds = "added|changed|deprecated|removed|fixed|security"
    wrong = [n for n in names if not re.fullmatch(rf"(\+[\w-]+|\d+)\.({kinds})\.md", n)]
    assert wrong == []


@each_document
def test_prose_is_wrapped(document: Path) -> None:
    """No line of prose is longer than 100 characters; tables and code may be."""
    lines = docs.prose(document.read_text()).splitlines()
    assert [line for line in lines if len(line) > 100] == []


def texts_of_modules() -> Iterator[str]:
    """Yield the texts in the code of all packages."""
    for name, product in PRODUCTS.items():
        for path in (product.folder / name).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    yield node.value


def test_nothing_of_ours_is_installed_by_its_name() -> None:
    """No index has it: there anyone may own the name. A path says what is meant."""
    names = r"(?:pulsar|tubemq|ydb-topic)[-_]spark"
    pattern = re.compile(rf"pip install\b[^`\n]*[\s'\"]{names}(?![-\w/.])")
    texts = [*texts_of_modules(), *(page.read_text() for page in DOCUMENTS)]
    assert [found[0] for text in texts for found in pattern.finditer(text)] == []
    assert pattern.search("python -m pip install --no-deps 'pulsar-spark[spark]'")
    assert not pattern.search("pip install '/path/to/pulsar-spark[testing]'")


def test_sessions_are_those_of_the_package() -> None:
    """A builder alone starts a Python in which Spark may not find the format."""
    files = {path: path.read_text() for path in (ROOT / "examples").glob("*.py")}
    del files[ROOT / "examples" / "demo.py"]  # which sets that Python itself
    code = re.compile(r"^```python\n(.*?)^```", re.M | re.S)
    pages = {
        page: "".join(code.findall(page.read_text()))
        for page in DOCUMENTS
        if page not in docs.SIBLING_PAGES
    }
    alone = [path.name for path, text in (files | pages).items() if "OrCreate" in text]
    assert alone == []


# -- Commands ------------------------------------------------------------------------


@pytest.mark.parametrize("command", docs.commands(), ids=" ".join)
def test_command_is_understood(command: list[str]) -> None:
    """Each command that is shown has arguments that there are.

    That they do what the page says: tests/broker/test_documented_commands.py.
    """
    assert callable(parser().parse_args(command).run)


# -- Snippets ------------------------------------------------------------------------


#: Sections whose blocks need a broker of their own, and the test of these.
ELSEWHERE = {
    ("security", "Authentication"): "tests/broker/secured/test_authentication.py",
    ("security", "TLS"): "tests/broker/configured/test_tls.py",
    ("sql", "A pipeline"): "tests/broker/test_sql.py",
}


#: What pages show of the output of their blocks. README and index show a typed topic.
SHOWN = {
    code: shown
    for page in ("errors", "reading", "schemas", "sql")
    for code, shown in re.findall(
        r"^```python\n(.*?)^```\n\n```text\n(.*?)^```",
        (DOCS / f"{page}.md").read_text(),
        flags=re.M | re.S,
    )
}


def snippets() -> list[Any]:
    """Return the Python blocks of all documents, each once, named by its heading."""
    others = {
        block
        for name, section in ELSEWHERE
        for block in docs.snippets_of(DOCS / f"{name}.md", section)
    }
    found: dict[str, str] = {}
    elsewhere = {docs.TUTORIAL, *docs.SIBLING_PAGES}  # test_tutorial.py, and their own
    documents = [document for document in DOCUMENTS if document not in elsewhere]
    pattern = re.compile(r"^#+ ([^\n]+)$|^```python\n(.*?)^```", re.M | re.S)
    for document in documents:
        heading = ""
        for match in pattern.finditer(document.read_text()):
            heading = match[1] or heading
            if match[2] and match[2] not in others:
                name = re.sub(r"\W+", "-", f"{document.stem} {heading}".lower())
                found.setdefault(match[2], f"{name}-{len(found)}")
    return [pytest.param(code, id=name) for code, name in found.items()]


#: The topics of snippets, and their partitions.
TOPICS = (("orders", 2), ("orders-copy", 2), ("orders-de", 0), ("orders-fr", 0))

#: Of snippets that write elsewhere than into files.
WRITES = re.compile(
    r"""\.write(?:Stream)?\b(?!(?:\.mode\("overwrite"\))?\.(?:format\(")?parquet)|INSERT"""
)


def fill(service_url: str, admin: Admin, namespace: str, *names: str) -> None:
    """Make some of the topics, with rows."""
    for name, partitions in TOPICS:
        if name in names:
            topic = f"persistent://{namespace}/{name}"
            if partitions:
                admin.create_partitioned(topic, partitions)
            send(service_url, topic, [f'{{"id": {i}}}' for i in range(20)])


@pytest.fixture(scope="module")
def filled_namespace(service_url: str, admin: Admin) -> Iterator[str]:
    """Yield a namespace with all topics, for snippets that only read."""
    name = f"public/test-{uuid.uuid4().hex[:12]}"
    admin.create_namespace(name, keep=True)
    fill(service_url, admin, name, *dict(TOPICS))
    yield name
    admin.remove_namespace(name)


@pytest.fixture
def snippet_namespace(
    snippet: str, request: pytest.FixtureRequest, service_url: str, admin: Admin
) -> str:
    """Return a namespace with what a snippet reads."""
    if not WRITES.search(snippet):
        shared: str = request.getfixturevalue("filled_namespace")
        return shared
    namespace: str = request.getfixturevalue("namespace")
    fill(service_url, admin, namespace, *(n for n, _ in TOPICS if n in snippet))
    return namespace


@pytest.mark.parametrize("snippet", snippets())
def test_snippet_runs(
    snippet: str,
    spark: SparkSession,
    service_url: str,
    snippet_namespace: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each Python block runs, with names of the broker, topics and folders put in."""
    listeners: list[StreamingQueryListener] = []
    add = type(spark.streams).addListener

    def add_and_note(
        manager: StreamingQueryManager, listener: StreamingQueryListener
    ) -> None:
        listeners.append(listener)
        add(manager, listener)

    monkeypatch.setattr(type(spark.streams), "addListener", add_and_note)
    code = textwrap.dedent(snippet)
    code = code.replace("pulsar://localhost:6650", service_url)
    code = code.replace("public/default", snippet_namespace)
    code = code.replace('"/data/', f'"{tmp_path}/')
    code = code.replace("file:/data/", f"file:{tmp_path}/")
    (tmp_path / "keys").mkdir()
    rsa_pair().save(tmp_path / "keys", "orders")
    try:
        exec(compile(code, "snippet", "exec"), {"spark": spark})  # noqa: S102
    finally:
        for (
            listener
        ) in listeners:  # or it would tell of the queries of other tests, too
            spark.streams.removeListener(listener)
    printed = capsys.readouterr().out.replace(snippet_namespace, "public/default")
    if snippet in SHOWN:
        assert shape(printed) == shape(SHOWN[snippet])


def shape(output: str) -> list[str]:
    """Return the lines of an output in any order, without times, ids and widths."""
    lines = re.sub(r"[\d:.]+", "0", output).strip().splitlines()
    return sorted(re.sub(r"[-+ ]+", " ", line).strip() for line in lines)
