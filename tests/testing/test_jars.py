# SPDX-License-Identifier: Apache-2.0
"""Tests of `pulsar_spark.testing.jars`: downloads of Maven, and what is kept."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest

from pulsar_spark.testing.jars import (
    Downloads,
    pom_of,
    release_of,
    resolve_classpath,
)
from pulsar_spark.testing.processes import BrokerStartError
from tests.support.fixtures import Clock


@pytest.mark.broker
def test_jars_are_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A jar whose checksum is wrong is an error, not a warning of Maven's."""
    maven = tmp_path / "mvn"
    maven.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/asked\nexit 1\n')
    maven.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(BrokerStartError, match="could not resolve"):
        resolve_classpath(progress=None)
    assert "--strict-checksums" in (tmp_path / "asked").read_text().split()


@pytest.mark.parametrize(
    "said",
    [
        "Could not find artifact org.apache.pulsar:pulsar:pom:9.9.9 in central (https:",
        "org.apache.pulsar:pulsar:pom:9.9.9 was not found in https://repo during a",
    ],
)
def test_a_release_that_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    """One sentence says so; of what Maven says otherwise the colours are left out."""
    maven = tmp_path / "mvn"
    maven.write_text(f"#!/bin/sh\nprintf '\\033[0m[ERROR] {said}\\033[0m\\n'\nexit 1\n")
    maven.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(BrokerStartError) as caught:
        resolve_classpath("9.9.9", progress=None)
    assert str(caught.value) == "There is no Pulsar 9.9.9 in Maven's repository."
    with pytest.raises(BrokerStartError, match="could not resolve") as caught:
        resolve_classpath("9.9.8", progress=None)
    assert f"\n[ERROR] {said}\n" in str(caught.value)


@pytest.mark.parametrize("version", ["4", "latest", "v4.0.7", "4.0", "4.0.7/x"])
def test_what_is_no_release(version: str) -> None:
    """All three numbers are needed."""
    with pytest.raises(BrokerStartError, match=f"'{version}' is no release of Pulsar"):
        release_of(version)


def test_downloads_are_shown() -> None:
    """Lines of Maven's are added up; others are none of them."""
    clock = Clock()
    downloads = Downloads(clock=lambda: clock.now)
    for line in (
        "[INFO] Downloading from central: https://host/a/1/a-1.pom",
        "[INFO] Downloaded from central: https://host/a/1/a-1.pom (800 B at 2.1 kB/s)",
        "[INFO] Downloaded from central: https://host/b/1/b-1.jar (999 kB at 40 kB/s)",
    ):
        assert downloads.count(line)
    assert not downloads.count("[INFO] BUILD SUCCESS")
    assert str(downloads) == "  1.0 MB of about 100 MB, 2 files of 800"
    clock.now += 60
    large = (
        "[INFO] Downloaded from central: https://host/c/1/c-1.jar (20 MB at 1.0 MB/s)"
    )
    downloads.count(large)
    assert str(downloads) == " 21.0 MB of about 100 MB, 3 files of 800"
    clock.now += 10
    downloads.count(large)
    assert str(downloads) == " 41.0 MB of about 100 MB, 4 files of 800, about 30 s left"
    downloads.megabytes = 300.0  # of a larger release
    assert str(downloads).endswith("about 0 s left")


def test_releases_differ_in_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before a download, the size of that release is shown."""
    maven = tmp_path / "mvn"
    maven.write_text("#!/bin/sh\nexit 1\n")
    maven.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for version, megabytes in (("4.0.7", 100), ("5.0.1", 250)):
        progress = io.StringIO()
        with pytest.raises(BrokerStartError, match="could not resolve"):
            resolve_classpath(version, pom=pom_of(version), progress=progress)
        assert f"about {megabytes} MB" in progress.getvalue()


def test_class_path_is_remembered() -> None:
    """Maven is asked once; later calls answer from the cache, silently."""
    first = resolve_classpath(progress=None)
    progress = io.StringIO()
    assert resolve_classpath(progress=progress) == first
    assert progress.getvalue() == ""
    assert all(Path(jar).exists() for jar in first.split(os.pathsep))
