# SPDX-License-Identifier: Apache-2.0
"""The numbers of a plan of :mod:`pulsar_spark.loops.protobuf_values`.

A plan is a table of 64-bit numbers with a row for each field that is read. Fields of
one message follow each other, in the order of their numbers. ``protobuf_op.pxd`` has
the same for C, where they must be known when the loop is compiled; a test compares the
two.
"""

from __future__ import annotations

#: How many numbers there are of a field.
PER_FIELD = 10

(
    NUMBER,  # the field's own
    KIND,  # how it is written
    REPEATED,  # whether each value is a row of a list
    COLUMN,  # place of its column, -1 where it only takes the place of others
    FIRST,  # of a message: its own first field
    LAST,  # and the one that follows its last
    CASE,  # of a oneof: the place of the column that says which of them there is, or -1
    CHECKED,  # whether the value must be in a range
    LOW,  # where that begins, as the 64 bits of a signed number
    SPAN,  # how many values it has, less one
) = range(PER_FIELD)

# What KIND says, in groups by how they are written: as a varint,
BOOL = 0
INT32 = 1  # an enum, too
UINT32 = 2
SINT32 = 3
INT64 = 4  # and uint64
SINT64 = 5
# in eight bytes,
FIXED64 = 6  # double, fixed64, sfixed64
# in four bytes,
FLOAT = 7
SFIXED32 = 8
FIXED32 = 9
# with a length before it,
BYTES = 10
STRING = 11
MESSAGE = 12
# between two tags.
GROUP = 13

# How a column holds its rows.
NOTHING = 0  # a struct does not: it has columns for that
SMALL = 1  # in a byte
WORD = 2  # in four
LONG = 3  # in eight
PLACE = 4  # in eight: where bytes begin, and how many there are
LIST = 5  # in four: where its rows of the level below begin

# What is wrong with a value; 0 for nothing.
ENDS_EARLY = 1
BAD_TAG = 2
BAD_VARINT = 3
TOO_DEEP = 4
NOT_TEXT = 5
OUT_OF_RANGE = 6
TOO_LARGE = 7
