# SPDX-License-Identifier: Apache-2.0
"""The example runs as it stands, and so does what the page shows, on the double."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.support import docs
from tests.support.ydb.service import TopicService

EXAMPLE = Path(__file__).parents[3] / "examples" / "copy_ydb_topic.py"


def test_copy_ydb_topic(
    spark: SparkSession,
    service: TopicService,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
):
    """Each run copies what came since the one before, in order, with its metadata."""
    service.tokens = {"secret": frozenset({"read", "write"})}
    token = tmp_path / "token"
    token.write_text("secret")
    token.chmod(0o600)
    monkeypatch.setenv("YDB_TOKEN_FILE", str(token))
    service.store.create("copy", partitions=2)
    arguments = ["t", "copy", str(tmp_path / "checkpoint"), service.endpoint]
    monkeypatch.setattr("sys.argv", [str(EXAMPLE), *arguments])
    for count in (100, 200):
        runpy.run_path(str(EXAMPLE), run_name="__main__")
        printed = capsys.readouterr().out
        assert f"100 new rows copied to copy, which has {count}" in printed
        written, copied = service.store.stored("t"), service.store.stored("copy")
        assert sorted(m.data for m in copied) == sorted(m.data for m in written)
        assert len(copied) == count
    assert {m.metadata_items for m in copied} == {(("origin", b"example"),)}
    assert all(message.producer_id for message in copied)


def test_the_page_runs(spark: SparkSession, service: TopicService, tmp_path: Path):
    """What docs/ydb-topics.md shows copies a topic."""
    service.tokens = {"secret": frozenset({"read", "write"})}
    (tmp_path / "secrets").mkdir()
    token = tmp_path / "secrets" / "ydb-token"
    token.write_text("secret")
    token.chmod(0o600)
    for topic in ("orders", "orders-copy"):
        service.store.create(topic, partitions=2)
    options = {
        "url": service.endpoint,
        "auth.token": f"file:{token}",
        "topic": "orders",
    }
    numbers = spark.range(100).selectExpr("CAST(id AS STRING) AS data")
    numbers.write.format("ydb_topic").options(**options).mode("append").save()
    names: dict[str, Any] = {"spark": spark}
    page = docs.DOCS / "ydb-topics.md"
    for snippet in docs.snippets_of(page, "Reading and writing"):
        code = snippet.replace("grpcs://host:2135/path/of/database", service.endpoint)
        exec(code.replace("/data/", f"{tmp_path}/"), names)  # noqa: S102
    assert names["query"].awaitTermination(120), "the copy did not end"
    assert names["query"].exception() is None
    copied = [int(message.data) for message in service.store.stored("orders-copy")]
    assert sorted(copied) == list(range(100))
