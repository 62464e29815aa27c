# SPDX-License-Identifier: Apache-2.0
"""The example runs as it stands, and so does what the page shows, on the double."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from siblings.ydb_topic.tests.support.service import TopicService
from tests.support import docs

HOME = Path(__file__).parents[2]
EXAMPLE = HOME / "examples" / "copy_topic.py"


def test_a_topic_is_copied(
    spark: SparkSession,
    service: TopicService,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
):
    """The example copies what it writes, with its metadata; the page goes on there.

    Both have a stream between the same topics. So on its checkpoint the page's copies
    what came since the example's, and nothing else.
    """
    service.tokens = {"secret": frozenset({"read", "write"})}
    (tmp_path / "secrets").mkdir()
    token = tmp_path / "secrets" / "ydb-token"
    token.write_text("secret")
    token.chmod(0o600)
    for topic in ("orders", "orders-copy"):
        service.store.create(topic, partitions=2)
    checkpoint = tmp_path / "checkpoints" / "orders-copy"

    monkeypatch.setenv("YDB_TOKEN_FILE", str(token))
    arguments = ["orders", "orders-copy", str(checkpoint), service.endpoint]
    monkeypatch.setattr("sys.argv", [str(EXAMPLE), *arguments])
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    printed = capsys.readouterr().out
    assert "100 new rows copied to orders-copy, which has 100" in printed
    copied = service.store.stored("orders-copy")
    assert {m.metadata_items for m in copied} == {(("origin", b"example"),)}
    assert all(message.producer_id for message in copied)

    service.store.put("orders", 0, *[b"later %d" % n for n in range(50)])
    names: dict[str, Any] = {"spark": spark}
    for snippet in docs.snippets_of(HOME / "README.md", "Reading and writing"):
        code = snippet.replace("grpcs://host:2135/path/of/database", service.endpoint)
        exec(code.replace("/data/", f"{tmp_path}/"), names)  # noqa: S102
    assert names["query"].awaitTermination(120), "the copy did not end"
    assert names["query"].exception() is None
    written, copied = (
        sorted(message.data for message in service.store.stored(topic))
        for topic in ("orders", "orders-copy")
    )
    assert len(copied) == 150
    assert copied == written
