# SPDX-License-Identifier: Apache-2.0
# The numbers of protobuf_op.py, for Cython.

cdef enum:
    NUMBER
    KIND
    REPEATED
    COLUMN
    FIRST
    LAST
    CASE
    CHECKED
    LOW
    SPAN
    PER_FIELD

cdef enum:
    BOOL
    INT32
    UINT32
    SINT32
    INT64
    SINT64
    FIXED64
    FLOAT
    SFIXED32
    FIXED32
    BYTES
    STRING
    MESSAGE
    GROUP

cdef enum:
    NOTHING
    SMALL
    WORD
    LONG
    PLACE
    LIST

cdef enum:
    ENDS_EARLY = 1
    BAD_TAG
    BAD_VARINT
    TOO_DEEP
    NOT_TEXT
    OUT_OF_RANGE
    TOO_LARGE
