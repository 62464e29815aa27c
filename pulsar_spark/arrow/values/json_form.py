# SPDX-License-Identifier: Apache-2.0
"""In which form values in JSON hold times, bytes and NaN: what the owner reads.

The official clients differ, and neither reads all that the other one writes:

==============  ===========================  =============================
what            Java                         Python
==============  ===========================  =============================
moments, times  ISO 8601; integers are       no type of its own: integers
                seconds, or an error         are an ``int``
bytes           base64                       the text's own bytes
NaN, infinity   in quotes alone              bare alone
==============  ===========================  =============================
"""

from __future__ import annotations

from typing import NamedTuple

from pulsar_spark.arrow.values import ValueSettings
from pulsar_spark.arrow.values.avro_text import ROOT
from pulsar_spark.schemas.avro import AvroType
from pulsar_spark.schemas.info import SchemaInfo

#: Properties by which the Java client marks the schemas that it registers.
_OF_JAVA = ("__jsr310ConversionEnabled", "__alwaysAllowNull")

#: Names of the records that a write makes: of a value, and of parts of a KEY_VALUE.
_OF_SPARK = (ROOT, "key", "value")


class JsonForm(NamedTuple):
    """The form of values.

    Attributes:
        times_are_texts: Whether moments and times are ISO 8601, or else numbers.
        codec: How texts hold bytes, ``base64`` or ``utf8``; "" where no one says it.
        quotes_nan: Whether NaN and the infinities are texts.
    """

    times_are_texts: bool = False
    codec: str = "base64"
    quotes_nan: bool = True


def form_of(info: SchemaInfo, root: AvroType, settings: ValueSettings) -> JsonForm:
    """Return the form in which the owner of a schema reads values.

    Args:
        info: The schema.
        root: Its type.
        settings: What the user says.
    """
    is_of_java = any(name in info.properties for name in _OF_JAVA)
    is_known = is_of_java or (not info.properties and root.name in _OF_SPARK)
    codec = settings.json_bytes or ("base64" if is_known else "")
    return JsonForm(is_of_java, codec, quotes_nan=codec == "base64")
