# SPDX-License-Identifier: Apache-2.0
"""Decimals in JSON, read by the loops and one by one, in a process that may die.

    python -m tests.arrow.fuzz_decimals SEED COUNT

Compiled loops may crash on a number: the exit status says so then.
"""

from __future__ import annotations

import json
import random
import sys

import pyarrow as pa

from pulsar_spark.arrow.values import ValueSettings
from pulsar_spark.arrow.values import json as json_values
from pulsar_spark.schemas.info import SchemaInfo, SchemaType

ROWS = 150
EXPONENTS = ("0", "1", "5", "38", "39", "41", "77", "500", "1000000", "999999999")
TEXTS = ("a", "ab7e30", "1e5", "0.1E-77", "x-7e3")


def schema(precision: int, scale: int, *, is_record: bool) -> SchemaInfo:
    """A decimal as the root, or as a field beside a text."""
    number = {
        "type": "bytes",
        "logicalType": "decimal",
        "precision": precision,
        "scale": scale,
    }
    record = {
        "type": "record",
        "name": "R",
        "fields": [
            {"name": "d", "type": ["null", number], "default": None},
            {"name": "t", "type": ["null", "string"], "default": None},
        ],
    }
    text = json.dumps(record if is_record else number)
    return SchemaInfo(SchemaType.JSON, text.encode(), {})


def any_number(chance: random.Random) -> str:
    """A number of any size, often with an exponent."""
    text = chance.choice(("", "-")) + str(chance.randrange(10 ** chance.randrange(45)))
    if chance.random() < 0.5:
        text += "." + "".join(chance.choices("0123456789", k=chance.randrange(1, 45)))
    if chance.random() < 0.5:
        sign = chance.choice(("", "+", "-"))
        text += chance.choice("eE") + sign + chance.choice(EXPONENTS)
    return text


def fit_number(chance: random.Random, precision: int, scale: int) -> str:
    """A number that fits into its column."""
    whole = chance.randrange(10 ** chance.randrange(precision - scale + 1))
    text = chance.choice(("", "-")) + str(whole)
    digits = chance.randrange(scale + 1)
    if digits:
        text += "." + "".join(chance.choices("0123456789", k=digits))
    return text


def check(chance: random.Random) -> int:
    """Compare the two ways; return how many values the loops read."""
    precision = chance.randrange(1, 39)
    scale = chance.randrange(precision + 1)
    is_record = chance.random() < 0.8
    info = schema(precision, scale, is_record=is_record)
    share = chance.choice((0.0, 0.0, 0.01, 1.0))
    values = []
    for _ in range(ROWS):
        number = fit_number(chance, precision, scale)
        if chance.random() < share:
            number = any_number(chance)
        if is_record:
            number = f'{{"d": {number}, "t": "{chance.choice(TEXTS)}"}}'
        values.append(number.encode())
    array = pa.array(values, pa.binary())
    columns = json_values.columns_of(info)
    together = json_values.decoder(info, info, columns, ValueSettings())
    alone = json_values.decoder(info, info, columns, ValueSettings())
    alone._is_compiled = False
    many = together.decode(array, None)
    rows = [alone.decode(array.slice(row, 1), None) for row in range(ROWS)]
    assert list(many.bad) == [row for row in range(ROWS) if rows[row].bad]
    for index, column in enumerate(many.columns):
        single = pa.concat_arrays([row.columns[index] for row in rows])
        assert column.equals(single), (precision, scale)
    return ROWS - together.rows_alone


def main(seed: int, count: int) -> None:
    """Compare for many schemas."""
    chance = random.Random(seed)
    total = sum(check(chance) for _ in range(count))
    sys.stdout.write(f"{total}\n")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
