# SPDX-License-Identifier: Apache-2.0
"""Tests of `pulsar_spark.requirements`: what is said where a package is missing."""

from __future__ import annotations

import subprocess
import sys

import pytest

from pulsar_spark.requirements import PROTOBUF, require_packages
from tests.support.products import ROOT

#: Runs where these modules are not installed, as far as Python can tell.
_WITHOUT = "import sys\nfor name in {!r}:\n    sys.modules[name] = None\n"


def run_without(modules: list[str], code: str) -> subprocess.CompletedProcess[str]:
    """Run code in a Python of its own."""
    return subprocess.run(
        [sys.executable, "-c", _WITHOUT.format(modules) + code],
        capture_output=True,
        text=True,
        check=False,
    )


def test_all_are_here() -> None:
    """Nothing is said then."""
    require_packages()


@pytest.mark.parametrize(
    ("modules", "packages"),
    [
        (["lz4"], "lz4"),
        (["google.protobuf"], "protobuf"),
        (["google"], "protobuf"),
        (["lz4", "crc32c"], "crc32c lz4"),
    ],
)
@pytest.mark.parametrize("command", ["doctor", "plan"])
def test_commands_say_what_to_install(
    modules: list[str], packages: str, command: str
) -> None:
    """The command that finds out what is wrong with a machine does so, too."""
    code = f"from pulsar_spark.cli.main import main\nsys.exit(main([{command!r}]))"
    done = run_without(modules, code)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("[PULSAR_PACKAGES] ")
    assert f"`{sys.executable} -m pip install {packages}`" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("version", ["4.25.3", "5.29.4"])
def test_an_old_protobuf(version: str) -> None:
    """The command installs one that pyproject.toml allows."""
    code = (
        "import google.protobuf\n"
        f"google.protobuf.__version__ = '{version}'\n"
        "from pulsar_spark.cli.main import main\n"
        "sys.exit(main(['doctor']))"
    )
    done = run_without([], code)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("[PULSAR_PACKAGES] ")
    assert f"-m pip install '{PROTOBUF}'`" in done.stderr
    assert f'"{PROTOBUF}"' in (ROOT / "pyproject.toml").read_text()


def test_a_read_says_what_to_install() -> None:
    """Its error is one of ours."""
    code = (
        "import pulsar_spark\n"
        "try:\n"
        "    pulsar_spark.PulsarDataSource({})\n"
        "except pulsar_spark.PulsarSparkError as error:\n"
        "    print(error)\n"
    )
    assert "pip install lz4" in run_without(["lz4"], code).stdout
