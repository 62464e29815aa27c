# SPDX-License-Identifier: Apache-2.0
"""Secrets whose errors are TubeMQ's."""

from __future__ import annotations

from spark_topics.options import secrets
from tubemq_spark.errors import OptionError


class Secret(secrets.Secret):
    """A text that is never shown. See `spark_topics.options.secrets`."""

    __slots__ = ()

    error = OptionError
