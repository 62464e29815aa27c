# SPDX-License-Identifier: Apache-2.0
"""The options within the properties of a table in Spark's catalog."""

from __future__ import annotations

from collections.abc import Mapping

# Of org.apache.spark.sql.connector.catalog.TableCatalog.
_PROVIDER = "provider"
_OPTION_PREFIX = "option."


def options_of_table(given: Mapping[str, str]) -> Mapping[str, str] | None:
    """Return what ``CREATE TABLE ... OPTIONS (...)`` named, None if there is no table.

    Spark mixes it with TBLPROPERTIES, the provider, owner, comment and location, and
    gives each option twice::

        topic = orders, option.topic = orders, provider = queue, owner = me

    Args:
        given: The map that Spark hands over; keys in any case.
    """
    if _PROVIDER not in map(str.lower, given):
        return None
    named = {
        key.lower().removeprefix(_OPTION_PREFIX)
        for key in given
        if key.lower().startswith(_OPTION_PREFIX)
    }
    return {key: text for key, text in given.items() if key.lower() in named}
