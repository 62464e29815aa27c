# SPDX-License-Identifier: Apache-2.0
"""How the shared modules speak of TubeMQ."""

from __future__ import annotations

from spark_topics.network import Network, TlsNames
from spark_topics.system import System
from tubemq_spark import errors

SYSTEM = System(
    name="TubeMQ",
    distribution="tubemq-spark",
    package="tubemq_spark",
    option_error=errors.OptionError,
    schema_error=errors.SchemaError,
    checkpoint_error=errors.CheckpointError,
    data_loss_error=errors.DataLossError,
    transport_error=errors.TransportError,
    tls_error=errors.TlsError,
)

NETWORK = Network(
    system=SYSTEM,
    server="server",
    connect_timeout="`connect.timeout`",
    unreachable=(
        "Check `master.rpc` and the addresses that brokers give to the master, and "
        "that the server is up and can be reached from where Spark's tasks run."
    ),
    tls_port="Is this its port for TLS (usually 8716 of a master, 8124 of a broker)?",
    without_tls="Leave out `tls.enable` to do without TLS.",
    other_name="Let the certificate name the host that brokers give to the master.",
    trusts="its trust store",
    tls=TlsNames(
        trust_certificates="tls.truststore.path",
        certificate="tls.keystore.path",
        key="tls.keystore.path",
        insecure="tls.allow.insecure",
        verify_hostname="tls.verify.hostname",
        use_key_stores="tls.store.type=PKCS12",
        trust_store="tls.truststore.path",
        trust_store_password="tls.truststore.password",  # noqa: S106 - an option
        key_store="tls.keystore.path",
        key_store_password="tls.keystore.password",  # noqa: S106 - an option
        ciphers="tls.ciphers",
        protocols="tls.protocols",
    ),
)
