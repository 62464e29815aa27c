"""The README says what is true: its table is current, its snippets run."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pulsar_spark import errors
from pulsar_spark.options import METADATA_COLUMNS_ALL, options_table_markdown
from tests.test_examples import send

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.support.admin import Admin

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def test_options_table_is_current() -> None:
    """Between its markers is what the code knows; ``make readme`` puts it there."""
    begin, end = "<!-- options: begin -->\n", "<!-- options: end -->\n"
    shown = README[README.index(begin) + len(begin) : README.index(end)]
    assert shown.strip() == options_table_markdown().strip(), "run: make readme"


def test_every_column_is_listed() -> None:
    """Each metadata column has a row in the table of columns."""
    for name in METADATA_COLUMNS_ALL:
        assert re.search(rf"^\| `{name}`", README, re.MULTILINE), name


def test_every_condition_is_listed() -> None:
    """Each error condition has a row in the table of errors."""
    classes = [
        value
        for value in vars(errors).values()
        if isinstance(value, type)
        and issubclass(value, errors.PulsarSparkError)
        and value is not errors.PulsarSparkError
    ]
    for condition in {cls.condition for cls in classes}:
        assert f"| `{condition}` " in README, condition


def test_files_named_exist() -> None:
    """Each path that a table or a list of files names is there."""
    named = re.findall(r"`((?:pulsar_spark|tests|examples|proto)/[\w/.-]+)`", README)
    assert named
    for path in named:
        assert (ROOT / path).exists(), path


def snippets() -> list[Any]:
    """The Python blocks, in order, each with the heading above it as its name."""
    found = []
    heading = ""
    pattern = r"^#+ ([^\n]+)$|^```python\n(.*?)^```"
    for match in re.finditer(pattern, README, re.MULTILINE | re.DOTALL):
        heading = match[1] or heading
        if match[2]:
            name = re.sub(r"\W+", "-", heading.lower())
            found.append(pytest.param(match[2], id=f"{name}-{len(found)}"))
    return found


@pytest.mark.parametrize("snippet", snippets())
def test_snippet_runs(
    snippet: str,
    spark: SparkSession,
    service_url: str,
    admin: Admin,
    namespace: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Each Python block runs, with names of the broker, topics and folders put in."""
    topics = (("orders", 2), ("orders-copy", 2), ("orders-de", 0), ("orders-fr", 0))
    for name, partitions in topics:
        topic = f"persistent://{namespace}/{name}"
        if partitions:
            admin.create_partitioned(topic, partitions)
        send(service_url, topic, [f'{{"id": {i}}}' for i in range(20)])
    code = textwrap.dedent(snippet)
    code = code.replace("pulsar://localhost:6650", service_url)
    code = code.replace("public/default", namespace)
    code = code.replace('"/data/', f'"{tmp_path}/')
    exec(compile(code, "README.md", "exec"), {"spark": spark})  # noqa: S102
    capsys.readouterr()
