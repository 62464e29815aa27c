# SPDX-License-Identifier: Apache-2.0
"""Where each package and its tests are: one distribution, and its siblings.

A source distribution of pulsar-spark has no siblings.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]


class Product(NamedTuple):
    """A package and what belongs to it.

    Attributes:
        folder: The folder that contains the package and its ``setup.py``.
        tests: The folder of its tests.
        shims: Modules beside the package, by whose names Spark finds it.
    """

    folder: Path
    tests: Path
    shims: tuple[str, ...] = ()

    @property
    def tests_package(self) -> str:
        """The dotted name of its tests."""
        return ".".join(self.tests.relative_to(ROOT).parts)


_TUBEMQ = ROOT / "siblings" / "tubemq"
_YDB = ROOT / "siblings" / "ydb_topic"

#: Those of a clone by the name of the package.
PRODUCTS = {
    name: product
    for name, product in {
        "pulsar_spark": Product(
            ROOT, ROOT / "tests", ("pyspark_pulsar", "pyspark_pulsar_py")
        ),
        "spark_topics": Product(ROOT, ROOT / "tests" / "spark_topics"),
        "tubemq_spark": Product(_TUBEMQ, _TUBEMQ / "tests", ("pyspark_tubemq",)),
        "ydb_spark": Product(_YDB, _YDB / "tests", ("pyspark_ydb_topic",)),
    }.items()
    if product.folder.exists()
}

#: The siblings among these.
SIBLINGS = {
    name: product for name, product in PRODUCTS.items() if product.folder != ROOT
}
