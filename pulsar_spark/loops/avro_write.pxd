# SPDX-License-Identifier: Apache-2.0
# The types of avro_write.py, for Cython.

cimport cython
from libc.string cimport memcpy

cdef bint _IS_COMPILED
cdef int _RECORD
cdef int _LONG
cdef int _FIXED
cdef int _BYTES
cdef int _BOOLEAN
cdef int _DECIMAL_BYTES
cdef int _ARRAY
cdef int _MAP
cdef int _CONSTANT
cdef long long _UNFIT
cdef Py_ssize_t _LONG_ROOM
cdef Py_ssize_t _DECIMAL

cdef inline unsigned long long _folded(long long number) noexcept:
    return (<unsigned long long>number << 1) ^ <unsigned long long>(
        -<long long>(number < 0)
    )

cdef unsigned long long _zigzag(long long number) noexcept

@cython.final
cdef class Part:
    cdef int kind
    cdef object where
    cdef long long null_branch
    cdef long long value_branch
    cdef Py_ssize_t size
    cdef list children
    cdef bint has_validity
    cdef const unsigned char[::1] validity
    cdef Py_ssize_t first_bit
    cdef const long long[::1] numbers
    cdef const long long[::1] offsets
    cdef const unsigned char[::1] data
    cdef Py_ssize_t data_bytes

@cython.final
cdef class AvroWriter:
    cdef Py_ssize_t _room
    cdef object _bytes
    cdef unsigned char[::1] _out
    cdef Py_ssize_t _at
    cdef Py_ssize_t _row

    @cython.locals(
        ends="long long[::1]", skips=bint, skipped="const unsigned char[::1]",
        row=Py_ssize_t,
    )
    cpdef tuple write(self, Part part, Py_ssize_t rows, object nulls=*)

    @cython.locals(bit=Py_ssize_t)
    cdef int _write(self, Part part, Py_ssize_t row) except -1

    @cython.locals(
        bit=Py_ssize_t, kind=int, number=cython.longlong, begin=Py_ssize_t,
        size=Py_ssize_t, child=Part,
    )
    cdef int _value(self, Part part, Py_ssize_t row) except -1

    @cython.locals(
        begin=Py_ssize_t, end=Py_ssize_t, item=Py_ssize_t, first=Part, second=Part
    )
    cdef int _items(self, Part part, Py_ssize_t row) except -1

    @cython.locals(
        begin=Py_ssize_t, size=Py_ssize_t, sign=cython.uint, offset=Py_ssize_t
    )
    cdef int _decimal(self, Part part, Py_ssize_t row) except -1

    @cython.locals(left=cython.ulonglong, offset=Py_ssize_t)
    cdef inline int _long(self, long long number) except -1

    cdef inline int _byte(self, unsigned char byte) except -1

    cdef inline int _copy(self, Part part, Py_ssize_t begin, Py_ssize_t size) except -1

    cdef int _grow(self, Py_ssize_t size) except -1

# A memoryview as an argument would be some hundred bytes, copied and cleared each time.
cdef inline int _copy_bytes(
    AvroWriter writer, Part part, Py_ssize_t begin, Py_ssize_t size
) except -1:
    if size > 0:
        # For the bounds checks.
        writer._out[writer._at + size - 1] = part.data[begin + size - 1]
        memcpy(&writer._out[writer._at], &part.data[begin], size)
    return 0
