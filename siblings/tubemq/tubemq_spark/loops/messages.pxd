# SPDX-License-Identifier: Apache-2.0
# The types of messages.py, for Cython.

cimport cython

from spark_topics.loops cimport memory

cdef unsigned int _HAS_ATTRIBUTES
cdef unsigned int _CHECKSUM_MASK
cdef Py_ssize_t _SYSTEM_BYTES
cdef Py_ssize_t _MAX_COMPARED
cdef unsigned long long _MASK_32

@cython.final
cdef class MessageTable:
    cdef readonly object data
    cdef readonly bytes head
    cdef readonly Py_ssize_t count
    cdef readonly Py_ssize_t pairs
    cdef readonly bint has_attributes
    cdef readonly unsigned long long[::1] ids
    cdef readonly int[::1] bodies
    cdef readonly int[::1] values
    cdef readonly int[::1] types
    cdef readonly int[::1] times
    cdef readonly int[::1] pair_ends
    cdef readonly int[::1] names
    cdef readonly int[::1] texts
    cdef const unsigned char[::1] _bytes
    cdef unsigned int[::1] _checksums
    cdef unsigned int[::1] _flags
    cdef Py_ssize_t _room
    cdef Py_ssize_t _pair_room
    cdef Py_ssize_t _position
    cdef set _seen
    cdef Py_ssize_t _seen_from

    cpdef keep(self, Py_ssize_t count)

    @cython.locals(total=Py_ssize_t, number=Py_ssize_t)
    cpdef Py_ssize_t size_bytes(self)

    @cython.locals(
        bodies=cython.int[::1], data=object, number=Py_ssize_t, checksum=cython.uint,
        start=Py_ssize_t, end=Py_ssize_t,
    )
    cpdef Py_ssize_t first_damaged(self, object crc32) except -2

    @cython.locals(
        data="const unsigned char[::1]", begin=Py_ssize_t, position=Py_ssize_t,
        start=Py_ssize_t, tag=cython.uint, size=cython.ulonglong,
    )
    cdef bytes _scan(self, Py_ssize_t end)

    @cython.locals(kind=cython.uint, size=cython.ulonglong)
    cdef inline unsigned long long _skip(
        self, unsigned int tag, Py_ssize_t end
    ) except? 0

    @cython.locals(
        position=Py_ssize_t, value=cython.ulonglong, byte=cython.ulonglong,
        shift=cython.uint,
    )
    cdef inline unsigned long long _varint(self, Py_ssize_t end) except? 0

    @cython.locals(
        message_id=cython.ulonglong, checksum=cython.uint, flag=cython.uint,
        start=Py_ssize_t, stop=Py_ssize_t, tag=cython.uint, value=cython.ulonglong,
        number=Py_ssize_t,
    )
    cdef int _read_message(self, Py_ssize_t position, Py_ssize_t end) except -1

    @cython.locals(
        bodies=cython.int[::1], flags=cython.uint[::1],
        values=cython.int[::1], types=cython.int[::1], times=cython.int[::1],
        pair_ends=cython.int[::1], number=Py_ssize_t, start=Py_ssize_t,
        end=Py_ssize_t, size=cython.ulonglong,
    )
    cpdef Py_ssize_t split(self, bint wants_attributes) except -2

    @cython.locals(
        first=Py_ssize_t, position=Py_ssize_t, name=Py_ssize_t, name_end=Py_ssize_t,
        stop=Py_ssize_t, text=Py_ssize_t, bounds=cython.int[::1],
    )
    cdef bint _read_attributes(
        self, Py_ssize_t number, Py_ssize_t start, Py_ssize_t end
    ) except? False

    cdef inline int[::1] _of_system(self, Py_ssize_t name, Py_ssize_t name_end)

    @cython.locals(pair=Py_ssize_t)
    cdef inline int _add_pair(
        self, Py_ssize_t name, Py_ssize_t name_end, Py_ssize_t text, Py_ssize_t text_end
    ) except -1

    @cython.locals(
        names=cython.int[::1], pair=Py_ssize_t, begin=Py_ssize_t, stop=Py_ssize_t
    )
    cdef bint _is_new_name(
        self, Py_ssize_t first, Py_ssize_t start, Py_ssize_t end
    ) except? False

@cython.locals(
    nulls=Py_ssize_t, end=Py_ssize_t, row=Py_ssize_t, start=Py_ssize_t,
    size=Py_ssize_t, gathered=cython.uchar[::1], offsets=cython.int[::1],
    valid=cython.uchar[::1],
)
cpdef tuple gather(
    const unsigned char[::1] data, int[::1] bounds, Py_ssize_t count, object allocate=*
)

@cython.locals(numbers=cython.longlong[::1], row=Py_ssize_t)
cpdef progression(
    long long first, long long step, Py_ssize_t count, object allocate=*
)

@cython.locals(index=Py_ssize_t)
cdef bint _is_same(
    const unsigned char[::1] one,
    Py_ssize_t start,
    const unsigned char[::1] other,
    Py_ssize_t begin,
    Py_ssize_t size,
) except? False
