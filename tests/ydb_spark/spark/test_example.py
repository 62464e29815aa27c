# SPDX-License-Identifier: Apache-2.0
"""The example runs as it stands, on the double."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

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
