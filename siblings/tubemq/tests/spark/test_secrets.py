# SPDX-License-Identifier: Apache-2.0
"""No password is shown: not by errors, logs, reprs and plans, and not by Spark."""

from __future__ import annotations

import functools
import io
import logging
import os
import pickle
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession

from siblings.tubemq.tests.scripted_server import ScriptedServer, refuse
from spark_topics.options.spec import Scope
from tubemq_spark.client.identity import Identity
from tubemq_spark.errors import TubeMQError
from tubemq_spark.options import parse_read_options, parse_write_options
from tubemq_spark.sink.write import TubeMQWrite
from tubemq_spark.source.tubemq_source import TubeMQSource

PASSWORD = "c2VjcmV0LW9mLXRoZS10ZXN0"

# While tests are collected: Spark's workers have the variables that it started with,
# and it may start for another test of the process.
os.environ["TUBEMQ_PASSWORD"] = PASSWORD


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer({"t": [1]}) as server:
        yield server


def given(server: ScriptedServer, password: str) -> dict[str, str]:
    return {
        "master.rpc": server.address,
        "topic": "t",
        "usr.name": "me",
        "usr.password": password,
        "operation.timeout": "5000",
    }


@pytest.fixture
def forms(tmp_path: Path) -> dict[str, str]:
    """The password as an option may have it."""
    (tmp_path / "password").write_text(PASSWORD)
    return {
        "itself": PASSWORD,
        "file": f"file:{tmp_path}/password",
        "env": "env:TUBEMQ_PASSWORD",
    }


@pytest.fixture(params=["itself", "file", "env"])
def form(request: pytest.FixtureRequest, forms: dict[str, str]) -> str:
    """One of these."""
    return forms[request.param]


def everything(thing: Any) -> str:
    """What can be printed of something."""
    return f"{thing!r} {thing} {getattr(thing, '__dict__', '')}"


def copied(data: bytes) -> Any:
    """What was pickled here."""
    return pickle.loads(data)  # noqa: S301 - our own


def test_nothing_prints_it(
    server: ScriptedServer, form: str, caplog: pytest.LogCaptureFixture
):
    read = parse_read_options(given(server, form), Scope.BATCH)
    write = parse_write_options(given(server, form), Scope.BATCH_WRITE)
    shown = [everything(one) for one in (read, write, read.client, read.client.tls)]
    identity = Identity(read.client)
    shown += [everything(identity), everything(identity.certificate())]
    with caplog.at_level(logging.DEBUG):
        tasks = TubeMQSource(read).plan()
        TubeMQWrite(write).prepare()
        for step in ("consumer register", "producer register"):
            server.script(step, refuse(415, "no"))
        for act in (TubeMQSource(read).plan, TubeMQWrite(write).prepare):
            with pytest.raises(TubeMQError, match="415") as caught:
                act()
            shown += [everything(caught.value), "".join(traceback.format_tb(caught.tb))]
            shown.append(repr(copied(pickle.dumps(caught.value))))
    shown += [everything(tasks), caplog.text]
    assert PASSWORD not in "\n".join(shown)


def test_it_travels_only_where_it_was_given_itself(server: ScriptedServer, form: str):
    """Else each node finds it for itself."""
    for thing in (
        TubeMQSource(parse_read_options(given(server, form), Scope.STREAM)),
        TubeMQWrite(parse_write_options(given(server, form), Scope.STREAM_WRITE)),
    ):
        data = cloudpickle.dumps(thing)
        assert (PASSWORD.encode() in data) is (form == PASSWORD)
        again = copied(data)
        assert again == thing
        assert again.options.client.password.read() == PASSWORD


@pytest.mark.parametrize(
    "wrong",
    [
        {"usr.name": f"x\n{PASSWORD}"},
        {"usr.passwort": PASSWORD},
        {"tls.keystore.password": PASSWORD},
        {"tls.truststore.password": f"file:{PASSWORD}"},
    ],
)
def test_options_that_are_wrong_do_not_repeat_it(
    server: ScriptedServer, wrong: dict[str, str]
):
    with pytest.raises(TubeMQError) as caught:
        parse_read_options(given(server, PASSWORD) | wrong, Scope.BATCH)
    assert PASSWORD not in everything(caught.value)


def test_spark_does_not_show_it(
    spark: SparkSession,
    server: ScriptedServer,
    capfd: pytest.CaptureFixture[str],
    forms: dict[str, str],
):
    rows = spark.range(3).selectExpr("cast(id as string) as value")
    sink = given(server, forms["itself"])
    rows.write.format("tubemq").options(**sink).mode("append").save()

    def read(form: str) -> DataFrame:
        return spark.read.format("tubemq").options(**given(server, form)).load()

    frame = functools.reduce(DataFrame.union, map(read, forms.values()))
    assert frame.count() == 3 * len(forms)
    out = io.StringIO()
    for mode in ("extended", "codegen", "cost", "formatted"):
        frame.explain(mode=mode)
    execution = frame._jdf.queryExecution()
    out.write(f"{frame!r} {execution.toString()} {execution.logical().toJSON()}")
    server.script("consumer register", refuse(415, "no"))
    with pytest.raises(Exception, match="TUBEMQ_AUTH") as caught:  # Spark's own
        read(forms["itself"]).count()
    out.write(everything(caught.value))
    captured = capfd.readouterr()
    assert PASSWORD not in out.getvalue() + captured.out + captured.err
