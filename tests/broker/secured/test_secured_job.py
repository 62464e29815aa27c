# SPDX-License-Identifier: Apache-2.0
"""The example of a job with TLS and a token, on a Spark cluster as the docs have it."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from tests.broker.secured.test_authentication import publish, topic_of, values_in
from tests.support.standalone import StandaloneCluster, install
from tests.support.streaming import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.certificates import Authority
    from tests.support.secured import SecuredBroker

#: As the page on security has them: who speaks in the cluster proves who it is, and
#: nobody else can read along.
SETTINGS = {
    "spark.authenticate": "true",
    "spark.authenticate.secret": "a-secret-of-the-cluster",
    "spark.network.crypto.enabled": "true",
}


@pytest.mark.matrix
@pytest.mark.timeout(600)
def test_a_secured_topic_is_copied(
    secured: SecuredBroker, authority: Authority, tmp_path: Path
) -> None:
    """Each run copies what came since the one before, and shows no secret."""
    source, sink = topic_of(secured, [str(n) for n in range(50)]), topic_of(secured)
    folder = tmp_path / "pulsar"
    folder.mkdir()
    shutil.copy(authority.certificate, folder / "ca.pem")
    token = secured.signer.token("both")
    (folder / "token").write_text(token)
    arguments = (source, sink, str(tmp_path / "checkpoint"), secured.broker.tls_url)
    python = install(tmp_path / "install")
    job = ROOT / "examples" / "secured_job.py"
    with StandaloneCluster(tmp_path / "cluster", 1, SETTINGS) as cluster:
        for run, new in (("first", 50), ("second", 30)):
            given = python, job, *arguments, str(folder)
            with cluster.spark_submit(run, *given) as driver:
                driver.await_end()
            printed = (driver.folder / "log").read_text()
            assert f"{new} new rows copied to {sink}" in printed
            if run == "first":
                publish(secured, source, [str(n) for n in range(50, 80)])
    assert sorted(values_in(secured, sink), key=int) == [str(n) for n in range(80)]
    for file in (tmp_path / "cluster").rglob("*"):
        assert not file.is_file() or token.encode() not in file.read_bytes(), file
