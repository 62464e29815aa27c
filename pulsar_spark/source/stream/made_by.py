# SPDX-License-Identifier: Apache-2.0
"""Who made a subscription, as properties that brokers keep with the subscription.

Spark tells a source in Python neither its application nor the query, nor where the
checkpoint is: neither its calls nor its environment have these, seen on Spark 4.3. What
is left is the driver's machine, its user, and what a resource manager says.
"""

from __future__ import annotations

import getpass
import os
import platform
from collections.abc import Mapping

from pulsar_spark._version import __version__

#: Names of the properties.
CONNECTOR, HOST, USER, APPLICATION = (
    "spark.connector",
    "spark.host",
    "spark.user",
    "spark.application",
)

#: Where resource managers name the application: of Kubernetes and of YARN.
_APPLICATION = ("SPARK_APPLICATION_ID", "CONTAINER_ID")

#: Brokers keep properties with the cursor: none may be long.
_CHARACTERS = 200


def made_by(given: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the properties of a subscription that this process makes.

    Args:
        given: The environment; None for that of this process.
    """
    environment = os.environ if given is None else given
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container may run by a number without a name
        user = ""
    properties = {
        CONNECTOR: f"pulsar-spark {__version__}",
        HOST: platform.node(),
        USER: user,
        APPLICATION: next(filter(None, map(environment.get, _APPLICATION)), ""),
    }
    return {name: text[:_CHARACTERS] for name, text in properties.items() if text}
