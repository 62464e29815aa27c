# SPDX-License-Identifier: Apache-2.0
"""Tests of `pulsar_spark.cli.doctor`; on a real broker: tests/broker."""

from __future__ import annotations

import json
import os
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyspark
import pytest

from pulsar_spark.cli import doctor
from pulsar_spark.cli.doctor import BAD, NOT_DONE, OK, WARNING
from pulsar_spark.schemas.info import SchemaType
from tests.support.scripted_broker import (
    ScriptedBroker,
    refuse,
    silence,
    single,
)

if TYPE_CHECKING:
    from tests.cli.conftest import Run

T = "persistent://public/default/t"
ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _healthy(monkeypatch: pytest.MonkeyPatch) -> None:
    """This machine is well: tests of it give an environment of their own."""
    monkeypatch.setattr(doctor, "of_this_machine", lambda deadline_s: [])


def steps(run: Run, *arguments: object) -> tuple[int, dict[str, Any]]:
    """The exit code, and the steps by their names."""
    code, printed = run("doctor", *arguments, "--json")
    return code, {one["step"]: one for one in json.loads(printed)["steps"]}


def results(found: dict[str, Any]) -> dict[str, str]:
    """How each step went."""
    return {name: one["result"] for name, one in found.items()}


@pytest.mark.parametrize("topic", ["topic=t", "topicsPattern=public/default/t.*"])
def test_all_is_well(scripted: ScriptedBroker, run: Run, topic: str) -> None:
    """One message is read, and nothing is left."""
    scripted.add_topic(T, [single(b"a", publish_time=0)])
    scripted.add_schema(T, SchemaType.STRING)
    code, found = steps(run, "-o", f"service.url={scripted.url}", "-o", topic)
    assert code == 0, found
    assert set(results(found).values()) == {OK}
    assert found["message"]["found"].startswith(f"{T}: 7:0, published 1970-01-01")
    assert found["schema"]["found"].startswith("STRING")
    assert not scripted.durable(T)


@pytest.mark.parametrize(
    ("command", "step"),
    [
        ("CONNECT", "authentication"),
        ("PARTITIONED_METADATA", "partitions"),
        ("LOOKUP", "lookup"),
        ("GET_SCHEMA", "schema"),
        ("SUBSCRIBE", "message"),
    ],
)
def test_which_step_fails(
    scripted: ScriptedBroker, run: Run, command: str, step: str
) -> None:
    """It is named, those before it are well, and later ones that need it not tried."""
    scripted.add_topic(T, [single(b"a")])
    if command == "CONNECT":
        scripted.always(command, refuse("AuthenticationError", "who are you"))
    else:
        scripted.always(command, refuse("AuthorizationError", "not allowed"))
    code, found = steps(run, "-o", f"service.url={scripted.url}", "-o", "topic=t")
    assert code == 1
    assert found[step]["result"] == BAD
    names = list(found)
    before = names[: names.index(step)]
    assert {found[name]["result"] for name in before} <= {OK}


def test_a_deadline(scripted: ScriptedBroker, run: Run) -> None:
    """A broker that is silent does not keep it."""
    scripted.add_topic(T)
    scripted.always("PARTITIONED_METADATA", silence)
    command = ("-o", f"service.url={scripted.url}", "-o", "topic=t")
    code, found = steps(run, *command, "--deadline", "0.3")
    assert code == 1
    assert found["partitions"]["result"] == BAD
    assert found["lookup"]["result"] == NOT_DONE


def test_nobody_there(scripted: ScriptedBroker, run: Run) -> None:
    """The cure names the ports; a second host that answers is enough."""
    scripted.add_topic(T)
    code, found = steps(run, "-o", "service.url=pulsar://127.0.0.1:1")
    assert code == 1
    assert found["connection"]["result"] == BAD
    assert "6650" in found["connection"]["cure"]
    hosts = f"pulsar://127.0.0.1:1,{scripted.address}"
    code, found = steps(run, "-o", f"service.url={hosts}", "-o", "topic=t")
    assert code == 0, found
    assert found["connection"]["found"] == scripted.address


def test_tls_to_a_plain_port(scripted: ScriptedBroker, run: Run) -> None:
    """It is the step TLS that fails."""
    url = f"service.url=pulsar+ssl://{scripted.address}"
    code, found = steps(run, "-o", url, "--deadline", "5")
    assert code == 1
    assert found["TLS"]["result"] == BAD
    assert found["authentication"]["result"] == NOT_DONE


def test_options_that_cannot_be(run: Run) -> None:
    """They are the first step."""
    code, found = steps(run, "-o", "topic=t", "-o", "no.such=1")
    assert code == 1
    assert found["options"]["result"] == BAD
    assert "service.url is required" in found["options"]["found"]


@pytest.mark.parametrize(
    ("given", "result", "text"),
    [
        ("topic=t", OK, ""),
        ("pulsar.producer.chunkingEnabled=true", OK, ""),
        ("deliveryGuarantee=idempotent topicsPattern=public/default/a.*", OK, ""),
        ("topic=t encryption.required=true encryption.privateKeys=file:/k", OK, ""),
        ("predefinedSubscription=s startingOffsets=subscription", OK, ""),
        (
            "topic=t startingOffsets=latest",
            WARNING,
            "As a batch read: startingOffsets cannot be latest",
        ),
        (
            "deliveryGuarantee=exactly-once",
            WARNING,
            "As a stream that writes: An exactly-once stream needs idempotenceId",
        ),
        (
            "deliveryGuarantee=exactly-once idempotenceId=orders",
            WARNING,
            "As a batch write: idempotenceId cannot be set",
        ),
        (
            "deliveryGuarantee=idempotent startingOffsets=subscription",
            BAD,
            "As a stream that reads: startingOffsets=subscription needs",
        ),
        (
            "startingOffsets=earliest startingTime=1 deliveryGuarantee=idempotent",
            BAD,
            "As a batch read or a stream that reads: startingOffsets and startingTime",
        ),
        (
            "deliveryGuarantee=idempotent pulsar.producer.chunkingEnabled=true",
            BAD,
            "pulsar.producer.chunkingEnabled cannot be true",
        ),
        ("minPartitions=4 maxPartitions=1", BAD, "maxPartitions must not be below"),
        ("topic=t topics=u", BAD, "topic and topics cannot be used together"),
        (
            "startingTime=2026-01-01 startingOffsets=earliest",
            BAD,
            "startingOffsets and startingTime cannot be used together",
        ),
        (
            "startingOffsets=subscription",
            BAD,
            "As a stream that reads: startingOffsets=subscription needs",
        ),
    ],
)
def test_options_together(run: Run, given: str, result: str, text: str) -> None:
    """They are judged as each kind of job that they may be for; one kind is enough."""
    options = [part for option in given.split() for part in ("-o", option)]
    nowhere = ["-o", "service.url=pulsar://127.0.0.1:1", "--deadline", "1"]
    _, found = steps(run, *nowhere, *options)
    assert found["options"]["result"] == result
    assert text in found["options"]["found"]
    assert found["connection"]["result"] == (NOT_DONE if result == BAD else BAD)


# -- this machine ----------------------------------------------------------------------


def executable(path: Path, text: str) -> str:
    """A program that prints this."""
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def python_step(given: dict[str, str]) -> doctor.Step:
    """What is said of the Pythons that Spark would start."""
    return doctor._python_of_spark(given, 60)


def test_the_python_of_spark(tmp_path: Path) -> None:
    """The one that looks for sources, and runs their tasks, must have the package."""
    here = {"PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"]}
    step = python_step({**here, "PYSPARK_PYTHON": sys.executable})
    assert step.result == OK, step
    without = executable(tmp_path / "python", "echo No module >&2; exit 1")
    for given in (
        {"PYSPARK_PYTHON": without},
        {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": without},
    ):
        step = python_step({**here, **given})
        assert step.result == BAD
        assert without in step.found
        assert f"PYSPARK_PYTHON={sys.executable}" in step.cure
    # Tasks of a source run that of PYSPARK_DRIVER_PYTHON.
    others = {"PYSPARK_PYTHON": without, "PYSPARK_DRIVER_PYTHON": sys.executable}
    assert python_step({**here, **others}).result == OK
    jupyter = executable(tmp_path / "jupyter", "echo usage: jupyter >&2; exit 2")
    step = python_step({**here, "PYSPARK_DRIVER_PYTHON": jupyter})
    assert (step.result, step.found) == (BAD, f"{jupyter} cannot import pulsar_spark")
    assert "pulsar_spark.use(spark)" in step.cure
    old = executable(tmp_path / "old", "echo 0.0.1 compiled 3.11")
    assert "Here it is" in python_step({**here, "PYSPARK_PYTHON": old}).cure
    assert python_step({"PATH": str(tmp_path)}).found == "python3 is not there"


def test_java(tmp_path: Path) -> None:
    """That of JAVA_HOME, or else of PATH."""
    (tmp_path / "bin").mkdir()
    assert doctor._java({"JAVA_HOME": str(tmp_path)}, 60).result == BAD
    executable(tmp_path / "bin" / "java", 'echo "openjdk 17" >&2')
    for given in ({"JAVA_HOME": str(tmp_path)}, {"PATH": str(tmp_path / "bin")}):
        step = doctor._java(given, 60)
        assert (step.result, step.found) == (OK, "openjdk 17")
    assert doctor._java({"PATH": ""}, 60).result == BAD


@pytest.mark.parametrize(
    ("version", "result", "said"),
    [
        ("3.5.8", doctor.BAD, "needs Spark 4.0 or newer"),
        ("4.0.1", doctor.WARNING, "limits, such as maxRowsPerTrigger, need Spark 4.2"),
        ("4.1.4", doctor.WARNING, "limits, such as maxRowsPerTrigger, need Spark 4.2"),
        ("4.2.0", doctor.OK, ""),
        ("4.3.0.dev0", doctor.OK, ""),
        ("10.0.0", doctor.OK, ""),
        ("next", doctor.WARNING, "not known what this version can do"),
    ],
)
def test_releases_of_spark(
    monkeypatch: pytest.MonkeyPatch, version: str, result: str, said: str
) -> None:
    """A release that is supported is never called broken."""
    monkeypatch.setattr(pyspark, "__version__", version)
    step = doctor._spark()
    assert step.result == result
    assert said in step.cure


def test_jars(tmp_path: Path) -> None:
    """The Scala connector is known by what it registers, wherever it is named."""
    (tmp_path / "conf").mkdir()
    (tmp_path / "jars").mkdir()
    service = "META-INF/services/org.apache.spark.sql.sources.DataSourceRegister"
    for name, source in (
        ("other", "org.apache.spark.sql.kafka010.KafkaSourceProvider"),
        ("scala", "org.apache.spark.sql.pulsar.PulsarProvider"),
    ):
        with zipfile.ZipFile(tmp_path / f"{name}.jar", "w") as jar:
            jar.writestr(service, source)
    (tmp_path / "jars" / "broken.jar").write_bytes(b"PK")
    os.link(tmp_path / "other.jar", tmp_path / "jars" / "other.jar")
    given = {"SPARK_HOME": str(tmp_path)}
    assert doctor._jars(given).result == OK
    for line in (
        f"spark.jars  /x.jar,file:{tmp_path}/scala.jar",
        f"spark.driver.extraClassPath={tmp_path}/*",
    ):
        (tmp_path / "conf" / "spark-defaults.conf").write_text(f"# a\n{line}\n")
        step = doctor._jars(given)
        assert (step.result, step.found) == (BAD, f"{tmp_path}/scala.jar")


def test_a_step_that_never_ends() -> None:
    """It is given up, and its text is never that of an unknown error."""
    import threading

    end = threading.Event()

    def wait() -> doctor.Step:
        end.wait(60)
        return doctor.Step("slow", OK, "")

    step = doctor._in_time("slow", 0.05, wait)
    end.set()
    assert (step.result, step.found) == (BAD, "no answer within 0.05 s")

    def fail() -> doctor.Step:
        raise ValueError("c2VjcmV0")

    assert doctor._in_time("failing", 60, fail).found == "ValueError"
