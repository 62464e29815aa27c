# SPDX-License-Identifier: Apache-2.0
"""What is given away: the source distribution, and the wheel that is built of it.

``make check`` runs this, and leaves both in ``build/dist``; by its name, ``make test``
does not run it.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from packaging.metadata import Metadata
from packaging.requirements import Requirement
from packaging.utils import parse_wheel_filename

from tests.packaging.environments import ROOT, Environment, run
from tests.support import kernels
from tests.support.products import SIBLINGS

pytestmark = pytest.mark.slow

#: What a clone has besides.
NOT_RELEASED = {".ci/run", ".gitignore"}

#: What a source distribution has besides.
ADDED = {"PKG-INFO", "setup.cfg"}

#: Some tests, with what they find in tests/ and beside it.
OF_SDIST = (
    "tests/arrow/test_schema.py",
    "tests/client/test_lookup.py",
    "tests/options",
    "tests/wire/test_golden.py",
    "tests/test_layers.py",
)

#: What depends on the versions of others: of pyarrow, protobuf, lz4 and crc32c.
OF_WHEEL = (
    "tests/arrow/test_decode.py",
    "tests/arrow/test_encode.py",
    "tests/arrow/test_schema.py",
    "tests/wire/test_compression.py",
    "tests/wire/test_golden.py",
    "tests/spark_topics/test_protobuf.py",
)
FAST = ("-q", "-p", "no:cacheprovider", "-m", "not broker and not spark", "--tb=short")


@pytest.fixture(scope="session")
def dist() -> Path:
    """A folder with both. The wheel is built of the sdist, as an installer would."""
    folder = ROOT / "build" / "dist"
    shutil.rmtree(folder, ignore_errors=True)
    build = (sys.executable, "-m", "build", "--outdir", folder)
    pinned = ("--dependency-constraints-txt", ROOT / "constraints.txt")
    run(*build, *pinned, ROOT, env={"PULSAR_SPARK_KERNEL": "compiled"})
    return folder


@pytest.fixture(scope="session")
def sdist(dist: Path) -> Path:
    """The source distribution."""
    (found,) = dist.glob("*.tar.gz")
    return found


@pytest.fixture(scope="session")
def wheel(dist: Path) -> Path:
    """The wheel."""
    (found,) = dist.glob("*.whl")
    return found


@pytest.fixture(scope="session")
def metadata(wheel: Path) -> Metadata:
    """What the wheel says of itself, validated as an index would."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        return Metadata.from_email(archive.read(name), validate=True)


@pytest.fixture
def unpacked(sdist: Path, tmp_path: Path) -> Path:
    """The folder that the source distribution unpacks to."""
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path / sdist.name.removesuffix(".tar.gz")


def test_sdist_has_all_files(unpacked: Path) -> None:
    """What is in the repository is in the sdist, and nothing else."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a clone")
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    names = listed.stdout.decode().splitlines()
    expected = {
        name
        for name in names
        if (ROOT / name).exists() and not name.startswith("siblings/")
    }
    files = (p for p in unpacked.rglob("*") if p.is_file())
    found = {
        str(p.relative_to(unpacked)) for p in files if p.parent.suffix != ".egg-info"
    }
    assert found - ADDED == expected - NOT_RELEASED


def test_tests_of_the_sdist_run(unpacked: Path) -> None:
    """They find their helpers and data."""
    run(sys.executable, "-m", "pytest", *FAST, *OF_SDIST, cwd=unpacked)


def test_wheel(wheel: Path, unpacked: Path) -> None:
    """It has all modules, their types, the kernel, and no tests."""
    packages = (unpacked / name for name in ("pulsar_spark", "spark_topics"))
    files = (p for package in packages for p in package.rglob("*") if p.is_file())
    expected = {str(p.relative_to(unpacked)) for p in files}
    expected |= {
        "pyspark_pulsar.py",
        "pyspark_pulsar_py.py",
    }
    found = {n for n in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in n}
    kernel = sorted(name.partition(".cpython-")[0] for name in found - expected)
    assert kernel == [name.replace(".", "/") for name in kernels.MODULES]
    assert all(name.endswith(".so") for name in found - expected)
    assert expected < found
    (tag,) = parse_wheel_filename(wheel.name)[3]
    assert tag.platform != "any"


@pytest.mark.parametrize("name", SIBLINGS)
def test_wheel_of_a_sibling(name: str, wheel: Path, tmp_path: Path) -> None:
    """It has its package, its shim and its kernel, and works beside pulsar-spark."""
    sibling = SIBLINGS[name]
    build = (sys.executable, "-m", "build", "--outdir", tmp_path)
    pinned = ("--dependency-constraints-txt", ROOT / "constraints.txt")
    run(*build, *pinned, sibling.folder, env={"PULSAR_SPARK_KERNEL": "compiled"})
    (built,) = tmp_path.glob("*.whl")
    names = [n for n in zipfile.ZipFile(built).namelist() if ".dist-info/" not in n]
    tops = {n.partition("/")[0].removesuffix(".py") for n in names}
    assert tops == {name, *sibling.shims}
    modules = kernels.KERNELS.get(sibling.folder, ())
    assert len([n for n in names if n.endswith(".so")]) == len(modules)
    environment = Environment(tmp_path / "venv")
    environment.install(f"{wheel}[spark]", built)
    (shim,) = sibling.shims
    run(environment.python, "-I", "-c", f"import {shim}; {shim}.DefaultSource.name()")


def test_metadata(metadata: Metadata) -> None:
    """It names who and where; no later Python is shut out; no link is relative."""
    assert metadata.requires_python is not None
    assert [s.operator for s in metadata.requires_python] == [">="]
    assert metadata.author
    assert metadata.license_expression == "Apache-2.0"
    urls = {"Homepage", "Documentation", "Changelog", "Issues"}
    assert metadata.project_urls is not None
    assert urls <= metadata.project_urls.keys()
    assert metadata.description_content_type == "text/markdown"
    readme = re.sub(r"(?ms)^```.*?^```$", "", str(metadata.description))
    inline = re.findall(r"\]\(([^)\s]+)", readme)
    named = re.findall(r"(?m)^\[[^\]]+\]:\s*(\S+)", readme)
    html = re.findall(r'(?:src|srcset|href)="([^"]+)"', readme)
    links = inline + named + html
    assert links
    assert [u for u in links if not u.startswith(("https://", "#"))] == []


def test_without_a_compiler(unpacked: Path, tmp_path: Path) -> None:
    """The wheel is one for any Python, without the kernel of an earlier source."""
    build = (sys.executable, "-m", "build", "--wheel", "--no-isolation")
    run(*build, "--outdir", tmp_path / "compiled", unpacked)
    for name in kernels.MODULES:
        (unpacked / f"{name.replace('.', '/')}.py").touch()
    run(*build, "--outdir", tmp_path / "pure", unpacked, env={"CC": "false"})
    (wheel,) = (tmp_path / "pure").glob("*.whl")
    assert wheel.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as archive:
        assert not [n for n in archive.namelist() if n.endswith(".so")]
        (name,) = (n for n in archive.namelist() if n.endswith(".dist-info/WHEEL"))
        assert b"Root-Is-Purelib: true" in archive.read(name)


@pytest.mark.parametrize("age", ["newest", "oldest"])
def test_installed(age: str, wheel: Path, metadata: Metadata, tmp_path: Path) -> None:
    """Spark finds the format, and tests pass, on all versions that are allowed."""
    extra = {"extra": "spark"}
    requirements = [
        requirement
        for requirement in metadata.requires_dist or []
        if requirement.marker is None or requirement.marker.evaluate(extra)
    ]
    versions = oldest(requirements) if age == "oldest" else []
    if versions and sys.version_info >= (3, 13):
        pytest.skip("they are older than this Python, and have no wheels for it")
    environment = Environment(tmp_path / "venv")
    tools = ("pytest", "pytest-timeout", "hypothesis", "pulsar-client")
    environment.install(f"{wheel}[spark]", *versions, *tools)
    environment.smoke("compiled", "spark")
    work = tmp_path / "work"
    shutil.copytree(ROOT / "tests", work / "tests")
    shutil.copy(ROOT / "pyproject.toml", work)
    run(environment.python, "-m", "pytest", *FAST, *OF_WHEEL, cwd=work)


def oldest(requirements: list[Requirement]) -> list[str]:
    """Return the lower bounds, as versions to install."""
    return [
        f"{one.name}=={bound.version}"
        for one in requirements
        for bound in one.specifier
        if bound.operator == ">="
    ]
