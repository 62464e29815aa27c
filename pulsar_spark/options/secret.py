# SPDX-License-Identifier: Apache-2.0
"""Secrets whose errors are Pulsar's."""

from __future__ import annotations

from pulsar_spark.errors import OptionError
from spark_topics.options import secrets


class Secret(secrets.Secret):
    """A text that is never shown. See `spark_topics.options.secrets`."""

    __slots__ = ()

    error = OptionError


#: How an option's text becomes one.
secret = Secret.parse
