# SPDX-License-Identifier: Apache-2.0
"""A jar on the class path whose source is called ``pulsar``, too, beside ours."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyspark
import pytest

from pulsar_spark.spark import other_source
from spark_topics import statistics
from tests.support.jvm import compile_java
from tests.support.session import ROOT, environment

JAVA = """
    package jar;

    import java.util.Map;
    import org.apache.spark.sql.SQLContext;
    import org.apache.spark.sql.sources.*;
    import org.apache.spark.sql.types.StructType;

    public class Other implements DataSourceRegister, RelationProvider {
        public String shortName() { return "pulsar"; }

        public BaseRelation createRelation(
            SQLContext context,
            scala.collection.immutable.Map<String, String> options
        ) {
            throw new IllegalStateException("the jar was asked");
        }
    }
"""

JOB = """
    import sys
    from tests.support.session import start_spark

    spark = start_spark(sys.argv[2], {"spark.jars": sys.argv[1]})

    def error_of(name):
        try:
            spark.read.format(name).load()
        except Exception as error:
            return str(error)

    print("BEFORE", flush=True)
    from pulsar_spark import PulsarDataSource, PulsarPyDataSource
    print("IMPORTED", flush=True)
    assert "the jar was asked" in error_of("pulsar")
    assert "[PULSAR_OPTION] service.url is required" in error_of("pulsar-py")
    spark.dataSource.register(PulsarPyDataSource)
    assert "[PULSAR_OPTION] service.url is required" in error_of("pulsar-py")
    spark.dataSource.register(PulsarDataSource)
    assert "the jar was asked" in error_of("pulsar")
    print("END", flush=True)
    spark.stop()
"""


@pytest.fixture
def jar(tmp_path: Path) -> Path:
    """A jar with such a source."""
    folder = tmp_path / "classes"
    services = folder / "META-INF" / "services"
    services.mkdir(parents=True)
    name = "org.apache.spark.sql.sources.DataSourceRegister"
    (services / name).write_text("jar.Other\n")
    source = tmp_path / "Other.java"
    source.write_text(textwrap.dedent(JAVA))
    jars = Path(pyspark.__file__).parent / "jars" / "*"
    compile_java(source, str(jars), folder)
    found = tmp_path / "other.jar"
    subprocess.run(["jar", "cf", str(found), "-C", str(folder), "."], check=True)
    return found


def test_side_by_side(jar: Path, tmp_path: Path) -> None:
    """``pulsar`` is the jar's, with a warning that names the cure; ours works, too."""
    job = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(JOB), str(jar), str(tmp_path)],
        check=False,
        capture_output=True,
        text=True,
        timeout=180,
        env=environment(),
        cwd=ROOT,
    )
    assert job.returncode == 0, job.stderr
    assert job.stdout.split() == ["BEFORE", "IMPORTED", "END"]
    assert job.stderr.count('format("pulsar") is jar.Other of a jar') == 1
    assert 'Use format("pulsar-py") for this package' in job.stderr


class Sources:
    """What Java's ServiceLoader finds."""

    def __init__(self, *names: str) -> None:
        self._names = list(names)

    def load(self, *_: Any) -> Sources:
        """As ``ServiceLoader.load``."""
        return self

    def iterator(self) -> Sources:
        """As ``Iterable.iterator``."""
        return self

    def hasNext(self) -> bool:  # noqa: N802 - Java's name
        """As ``Iterator.hasNext``."""
        return bool(self._names)

    def next(self) -> Any:
        """As ``Iterator.next``."""
        name = self._names.pop(0)
        if not name:
            raise RuntimeError("a class that this Spark cannot load")
        return SimpleNamespace(
            shortName=lambda: name,
            getClass=lambda: SimpleNamespace(getName=lambda: f"jar.{name}"),
        )


@pytest.mark.parametrize(
    ("names", "is_seen"),
    [
        (("csv", "Pulsar", "kafka"), True),
        (("csv", "pulsar-x"), False),
        ((), False),
        (("csv", ""), False),
    ],
)
def test_what_is_seen(
    names: tuple[str, ...],
    is_seen: bool,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Names are compared without case; jars that fail are none of our matter."""
    loader = SimpleNamespace(loadClass=lambda _: None)
    utils = SimpleNamespace(getContextOrSparkClassLoader=lambda: loader)
    spark = SimpleNamespace(util=SimpleNamespace(Utils=utils))
    jvm = SimpleNamespace(
        org=SimpleNamespace(apache=SimpleNamespace(spark=spark)),
        java=SimpleNamespace(util=SimpleNamespace(ServiceLoader=Sources(*names))),
    )
    context = SimpleNamespace(_active_spark_context=SimpleNamespace(_jvm=jvm))
    monkeypatch.setattr(other_source, "SparkContext", context)
    monkeypatch.setattr(statistics, "_warnings", set())
    other_source.warn_of_other_source("pulsar", "pulsar-py")
    said = "".join(caplog.messages)  # Spark may have chosen how it is written
    assert ('Use format("pulsar-py")' in said) is is_seen
    monkeypatch.setattr(context, "_active_spark_context", None)
    other_source.warn_of_other_source("pulsar", "pulsar-py")  # on an executor
