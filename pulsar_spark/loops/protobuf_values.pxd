# SPDX-License-Identifier: Apache-2.0
# The types of protobuf_values.py, for Cython.

cimport cython

from pulsar_spark.loops cimport protobuf_op as op
from spark_topics.loops cimport memory

cdef long long _MAX_BYTES_PER_BYTE
cdef long long _MAX_FREE_BYTES
cdef int _MAX_DEPTH
cdef Py_ssize_t _FIRST_ROOM
cdef unsigned long long _MASK_32
cdef unsigned long long _MASK_64
cdef unsigned long long _SIGN_32

@cython.final
cdef class Column:
    cdef readonly int storage
    cdef readonly bint has_presence
    cdef readonly list inner
    cdef readonly Level below
    cdef readonly long long weight
    cdef readonly unsigned char[::1] small
    cdef readonly unsigned char[::1] valid
    cdef readonly unsigned int[::1] words
    cdef readonly unsigned long long[::1] longs

    cpdef make_room(self, Py_ssize_t room, Py_ssize_t rows)

    @cython.locals(column=Column)
    cdef int clear(self, Py_ssize_t row) except -1

    cdef inline int _set(self, Py_ssize_t row, unsigned long long value) except -1

@cython.final
cdef class Level:
    cdef readonly list columns
    cdef readonly list lists
    cdef readonly Py_ssize_t rows
    cdef readonly long long row_bytes
    cdef Py_ssize_t _room

    cpdef add_column(self, Column column, long long further_bytes)

    @cython.locals(column=Column)
    cpdef make_room(self, Py_ssize_t room)

    @cython.locals(row=Py_ssize_t)
    cdef inline Py_ssize_t add_row(self) except -1

    @cython.locals(number=Py_ssize_t, column=Column)
    cdef inline int end_row(self, Py_ssize_t row) except -1

    @cython.locals(number=Py_ssize_t, row=Py_ssize_t, column=Column)
    cdef int cut(self, Py_ssize_t rows) except -1

@cython.final
cdef class Table:
    cdef readonly list columns
    cdef readonly list levels
    cdef readonly unsigned char[::1] valid
    cdef readonly list bad
    cdef readonly int fault
    cdef readonly Py_ssize_t fault_column
    cdef const long long[::1] _fields
    cdef Py_ssize_t _root_fields
    cdef Py_ssize_t _position
    cdef int _fault
    cdef Py_ssize_t _fault_column
    cdef long long _bytes

    @cython.locals(
        top=Level, valid=cython.uchar[::1], has_nulls=bint, number=Py_ssize_t,
        place=Py_ssize_t, row=Py_ssize_t, start=Py_ssize_t, end=Py_ssize_t,
    )
    cpdef read(
        self,
        const unsigned char[::1] data,
        const int[::1] offsets,
        const unsigned char[::1] validity,
        Py_ssize_t first,
        Py_ssize_t count,
    )

    @cython.locals(
        places=cython.ulonglong[::1], offsets=cython.uint[::1], total=Py_ssize_t,
        row=Py_ssize_t, texts=cython.uchar[::1], offset=Py_ssize_t, start=Py_ssize_t,
        size=Py_ssize_t,
    )
    cpdef tuple texts(
        self, const unsigned char[::1] data, Column column, Py_ssize_t rows
    )

    cdef int _note_bad(self, Py_ssize_t row) except -1

    cdef Py_ssize_t _fail(self, int fault, Py_ssize_t column=*) except? -1

    @cython.locals(
        fields="const long long[::1]", offset=Py_ssize_t, tag=cython.ulonglong,
        number=cython.ulonglong, wire=cython.uint, base=Py_ssize_t, kind=cython.int,
        value=cython.ulonglong, size=Py_ssize_t,
    )
    cdef Py_ssize_t _message(
        self,
        const unsigned char[::1] data,
        Py_ssize_t position,
        Py_ssize_t end,
        Py_ssize_t first,
        Py_ssize_t last,
        Py_ssize_t row,
        int depth,
        unsigned long long group,
    ) except? -1

    @cython.locals(middle=Py_ssize_t)
    cdef Py_ssize_t _find(
        self, Py_ssize_t first, Py_ssize_t last, unsigned long long number
    ) except -1

    @cython.locals(value=cython.ulonglong, byte=cython.ulonglong, shift=cython.uint)
    cdef inline unsigned long long _varint(
        self, const unsigned char[::1] data, Py_ssize_t position, Py_ssize_t end
    ) except? 0

    @cython.locals(value=cython.ulonglong)
    cdef Py_ssize_t _size(
        self, const unsigned char[::1] data, Py_ssize_t position, Py_ssize_t end
    ) except? -1

    @cython.locals(low=cython.ulonglong)
    cdef inline bint _number(
        self,
        Py_ssize_t base,
        int kind,
        unsigned long long value,
        Py_ssize_t row,
    ) except -1

    @cython.locals(value=cython.ulonglong, column=Py_ssize_t)
    cdef inline bint _place(
        self,
        const unsigned char[::1] data,
        Py_ssize_t position,
        Py_ssize_t size,
        Py_ssize_t base,
        int kind,
        Py_ssize_t row,
    ) except -1

    @cython.locals(place=Py_ssize_t, column=Column, level=Level)
    cdef inline bint _write(
        self, Py_ssize_t base, unsigned long long value, Py_ssize_t row
    ) except -1

    @cython.locals(place=Py_ssize_t, before=Py_ssize_t, case=Column, column=Column)
    cdef int _choose(self, Py_ssize_t base, Py_ssize_t row) except -1

    @cython.locals(
        place=Py_ssize_t, column=Column, level=Level, first=Py_ssize_t,
        last=Py_ssize_t, item=Py_ssize_t,
    )
    cdef Py_ssize_t _nested(
        self,
        const unsigned char[::1] data,
        Py_ssize_t position,
        Py_ssize_t end,
        Py_ssize_t base,
        Py_ssize_t row,
        int depth,
        unsigned long long group,
    ) except? -1

    @cython.locals(size=Py_ssize_t, width=Py_ssize_t, value=cython.ulonglong)
    cdef Py_ssize_t _packed(
        self,
        const unsigned char[::1] data,
        Py_ssize_t position,
        Py_ssize_t end,
        Py_ssize_t base,
        int kind,
    ) except? -1

    @cython.locals(size=Py_ssize_t)
    cdef Py_ssize_t _skip(
        self,
        const unsigned char[::1] data,
        Py_ssize_t position,
        Py_ssize_t end,
        unsigned int wire,
        unsigned long long number,
        int depth,
    ) except? -1
