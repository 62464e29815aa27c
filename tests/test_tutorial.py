# SPDX-License-Identifier: Apache-2.0
"""The tutorial runs from top to bottom, as the notebook that is made of it."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.docs import NOTEBOOK

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

#: Which the tutorial sets.
CONF = ("spark.app.name", "spark.sql.session.timeZone", "spark.sql.shuffle.partitions")


@pytest.fixture
def session(spark: SparkSession) -> Iterator[SparkSession]:
    """Spark, as it was before, afterwards."""
    before = {name: spark.conf.get(name) for name in CONF}
    yield spark
    for name, value in before.items():
        spark.conf.set(name, value)
    spark.catalog.dropTempView("revenue")


def test_all_of_it(
    session: SparkSession,
    service_url: str,
    namespace: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Each cell prints what the page shows, and the last draws what is in the topic."""
    import matplotlib.pyplot as plt
    from matplotlib.colors import to_rgb

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    monkeypatch.setenv("PYSPARK_PYTHON", os.environ["PYSPARK_PYTHON"])
    names: dict[str, Any] = {}
    outputs = {}
    for cell in json.loads(NOTEBOOK.read_text())["cells"]:
        if cell["cell_type"] == "code":
            code = "".join(cell["source"])
            code = code.replace("pulsar://localhost:6650", service_url)
            code = code.replace("public/default", namespace)
            exec(compile(code, cell["id"], "exec"), names)  # noqa: S102
            printed = capsys.readouterr().out.strip("\n")
            shown = "".join(
                line for output in cell["outputs"] for line in output.get("text", ())
            )
            assert printed == shown.strip("\n")
            outputs |= {output["output_type"]: cell["id"] for output in cell["outputs"]}
    assert set(outputs) == {"stream", "display_data"}
    source = session.read.format("pulsar").options(**names["pulsar"]).load()
    expected = dict(source.groupBy("country").sum("cents").collect())
    lines = names["axes"].get_lines()
    drawn = {one.get_label(): round(sum(one.get_ydata()) * 100) for one in lines}
    assert drawn == expected
    assert sorted(drawn) == sorted(names["COUNTRIES"])

    picture = plt.imread(tmp_path / "orders" / "revenue.png")
    assert picture.shape == (320, 640, 4)
    for line in lines:
        distance = abs(picture[:, :, :3] - to_rgb(line.get_color())).max(axis=2)
        assert (distance < 0.02).sum() > 300, f"the curve of {line.get_label()}"
    plt.close(names["figure"])
