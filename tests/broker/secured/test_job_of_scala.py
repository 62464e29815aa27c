# SPDX-License-Identifier: Apache-2.0
"""The Scala connector's example of authentication, line by line in Python."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pulsar
import pytest
from pyspark.errors import PySparkException

from tests.broker.test_jobs_of_scala import FULL, ONE, ROWS
from tests.support.official import client
from tests.support.pasted import paste, streamed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.support.certificates import Authority
    from tests.support.secured import SecuredBroker

SECURED = """
df = (
    spark
    .readStream
    .format("pulsar")
    .option("service.url", "pulsar://localhost:6650")
    .option(
        "pulsar.client.authPluginClassName",
        "org.apache.pulsar.client.impl.auth.AuthenticationToken",
    )
    .option("pulsar.client.authParams", "token:<valid client JWT token>")
    .option("topicsPattern", "sensitiveTopic")
    .load()
)
pairs = df.selectExpr("CAST(__key AS STRING)", "CAST(value AS STRING)")
"""
BY_TLS = SECURED.replace(
    "pulsar://localhost:6650", "pulsar+ssl://localhost:6651"
).replace(
    '    .option("topicsPattern"',
    """    .option(
        "pulsar.admin.authPluginClassName",
        "org.apache.pulsar.client.impl.auth.AuthenticationToken",
    )
    .option("pulsar.admin.authParams", "token:<valid admin JWT token>")
    .option("pulsar.client.tlsTrustCertsFilePath", "/path/to/tls/cert/cert.pem")
    .option("pulsar.client.tlsAllowInsecureConnection", "false")
    .option("pulsar.client.tlsHostnameVerificationenable", "true")
    .option("topicsPattern\"""",
)


@pytest.mark.slow
def test_authentication(
    spark: SparkSession, secured: SecuredBroker, authority: Authority
) -> None:
    """With a token, and by TLS besides; a wrong path of a certificate is named."""
    topic = f"{FULL}sensitiveTopic"
    secured.admin.grant("public/default", "both", "produce", "consume")
    secured.admin.create_topic(topic)
    token = secured.signer.token("both")
    keys = pulsar.AuthenticationToken(token)

    def publish_securely() -> None:
        with client(secured.service_url, authentication=keys) as one:
            producer = one.create_producer(topic)
            for row in ROWS["topic1"]:
                producer.send(row.value, partition_key=row.key)

    for code, url, ours in (
        (SECURED, "pulsar://localhost:6650", secured.service_url),
        (BY_TLS, "pulsar+ssl://localhost:6651", secured.broker.tls_url),
    ):
        pasted = code.replace("<valid client JWT token>", token).replace(url, ours)
        if code is BY_TLS:
            with pytest.raises(PySparkException, match="/path/to/tls/cert") as caught:
                paste(pasted, spark=spark)
            assert token not in str(caught.value)
            path = str(authority.certificate)
            pasted = pasted.replace("/path/to/tls/cert/cert.pem", path)
        pairs = paste(pasted, spark=spark)["pairs"]
        assert streamed(spark, pairs, publish_securely, len(ONE)) == ONE
