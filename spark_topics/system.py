# SPDX-License-Identifier: Apache-2.0
"""What the shared modules say, log and raise in the name of a messaging system."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from spark_topics.errors import (
    CheckpointError,
    DataLossError,
    OptionError,
    SchemaError,
    TlsError,
    TransportError,
)


@dataclass(frozen=True)
class System:
    """A messaging system: names and errors that users see.

    Attributes:
        name: What messages call it, such as ``Pulsar``.
        distribution: What users install, and upgrade.
        package: The package, by which names of its loggers begin.
        option_error: Its class of each kind of error that shared modules raise.
        schema_error: In the same way, as for the others.
        checkpoint_error: Of offsets that cannot be read.
        data_loss_error: Of rows that are gone.
        transport_error: Of connections.
        tls_error: Of connections that cannot be made safe.
    """

    name: str
    distribution: str
    package: str
    option_error: type[OptionError]
    schema_error: type[SchemaError]
    checkpoint_error: type[CheckpointError]
    data_loss_error: type[DataLossError]
    transport_error: type[TransportError]
    tls_error: type[TlsError]

    def logger(self, room: str) -> logging.Logger:
        """Return the logger of a part of the package, such as ``client``."""
        return logging.getLogger(f"{self.package}.{room}")
