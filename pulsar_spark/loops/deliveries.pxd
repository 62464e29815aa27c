# SPDX-License-Identifier: Apache-2.0
# The types of deliveries.py, for Cython.

cimport cython
from libc.stdint cimport int64_t

from pulsar_spark.loops cimport fact

cdef Py_ssize_t _MOST_BYTES
cdef Py_ssize_t _MOST_ENTRIES
cdef Py_ssize_t _MOST_COMMAND_BYTES
cdef Py_ssize_t _MOST_METADATA_BYTES
cdef long long _MOST_UNPACKED_BYTES
cdef long long _MOST_TEXT_BYTES
cdef long long _MAX_INT32

cdef long long[::1] _numbers(Py_ssize_t count)

@cython.final
cdef class Deliveries:
    cdef readonly long long consumer_id
    cdef readonly bytes data
    cdef readonly long long[::1] facts
    cdef Py_ssize_t _count

    cpdef int64_t fact(self, Py_ssize_t number, Py_ssize_t which)

    @cython.locals(offset=Py_ssize_t)
    cpdef tuple position(self, Py_ssize_t number)

    @cython.locals(
        facts=cython.longlong[::1], ledger_before=cython.longlong,
        entry_before=cython.longlong, end_ledger=cython.longlong,
        end_entry=cython.longlong, number=Py_ssize_t, offset=Py_ssize_t,
        ledger_id=cython.longlong, entry_id=cython.longlong,
    )
    cpdef Py_ssize_t following(
        self, Py_ssize_t first, tuple after, tuple end
    ) except -1

    @cython.locals(charged=cython.longlong, number=Py_ssize_t)
    cpdef int64_t charged_messages(self, Py_ssize_t first, Py_ssize_t last)

    @cython.locals(charged=cython.longlong, number=Py_ssize_t, offset=Py_ssize_t)
    cpdef int64_t charged_bytes(self, Py_ssize_t first, Py_ssize_t last)

    @cython.locals(column=cython.longlong[::1], number=Py_ssize_t, offset=Py_ssize_t)
    cpdef object column(
        self, Py_ssize_t which, Py_ssize_t first, Py_ssize_t last, long long plus=*
    )

    @cython.locals(
        facts=cython.longlong[::1], rows=Py_ssize_t, column=cython.longlong[::1],
        row=Py_ssize_t, number=Py_ssize_t, offset=Py_ssize_t, value=cython.longlong,
        last_row=Py_ssize_t,
    )
    cpdef object repeated(
        self, Py_ssize_t which, Py_ssize_t first, Py_ssize_t last, Py_ssize_t first_row
    )

@cython.final
cdef class Scanner:
    cdef readonly long long consumer_id
    cdef readonly Py_ssize_t stop
    cdef Py_ssize_t _room
    cdef Py_ssize_t _position
    cdef long long[::1] _facts

    @cython.locals(
        position=Py_ssize_t, count=Py_ssize_t, frame_bytes=Py_ssize_t,
        frame_end=Py_ssize_t, command_bytes=Py_ssize_t, command_end=Py_ssize_t,
        offset=Py_ssize_t, consumer_id=cython.longlong,
    )
    cpdef Py_ssize_t scan(
        self,
        const unsigned char[::1] data,
        Py_ssize_t start,
        Py_ssize_t end,
        Py_ssize_t most_frame_bytes,
        object wanted,
    ) except -1

    @cython.locals(copy=cython.longlong[::1])
    cpdef object facts(self, Py_ssize_t count)

    @cython.locals(room=Py_ssize_t, longer=cython.longlong[::1])
    cdef int _make_room(self) except -1

    @cython.locals(
        facts=cython.longlong[::1], ledger_id=cython.longlong,
        consumer_id=cython.longlong, entry_id=cython.longlong,
        redelivery_count=cython.longlong, position=Py_ssize_t, id_end=Py_ssize_t,
        tag=cython.uint, value=cython.longlong,
    )
    cdef int64_t _read_command(
        self,
        const unsigned char[::1] data,
        Py_ssize_t start,
        Py_ssize_t end,
        Py_ssize_t offset,
    ) except -2

    @cython.locals(facts=cython.longlong[::1], size=Py_ssize_t)
    cdef bint _read_entry(
        self,
        const unsigned char[::1] data,
        Py_ssize_t position,
        Py_ssize_t end,
        Py_ssize_t origin,
        Py_ssize_t offset,
    ) except -1

    @cython.locals(
        facts=cython.longlong[::1], count=cython.longlong, codec=cython.longlong,
        unpacked_bytes=cython.longlong, publish_time=cython.longlong,
        event_time=cython.longlong, sequence_id=cython.longlong,
        highest_sequence_id=cython.longlong, marks=cython.longlong,
        head_bytes=cython.longlong, key=Py_ssize_t, ordering_key=Py_ssize_t,
        key_end=Py_ssize_t, ordering_key_end=Py_ssize_t, version=Py_ssize_t,
        version_end=Py_ssize_t, name_bytes=cython.longlong,
        cluster_bytes=cython.longlong, position=Py_ssize_t, tag=cython.uint,
        value=cython.longlong, size=cython.longlong, has_no_gaps=bint,
    )
    cdef bint _read_metadata(
        self,
        const unsigned char[::1] data,
        Py_ssize_t start,
        Py_ssize_t end,
        Py_ssize_t origin,
        Py_ssize_t offset,
    ) except -1

    @cython.locals(position=Py_ssize_t)
    cdef bint _is_broker_metadata(
        self, const unsigned char[::1] data, Py_ssize_t start, Py_ssize_t end
    ) except -1

    @cython.locals(
        size=cython.longlong, has_key=bint, has_value=bint, position=Py_ssize_t,
        tag=cython.uint, length=cython.longlong,
    )
    cdef int64_t _pair_bytes(
        self, const unsigned char[::1] data, Py_ssize_t start, Py_ssize_t end
    ) except -2

    @cython.locals(position=Py_ssize_t)
    cdef bint _is_text(
        self, const unsigned char[::1] data, Py_ssize_t start, Py_ssize_t end
    ) except -1

    @cython.locals(
        position=Py_ssize_t, value=cython.longlong, byte=cython.longlong,
        shift=cython.uint,
    )
    cdef inline int64_t _varint(
        self, const unsigned char[::1] data, Py_ssize_t end
    ) except -2

    @cython.locals(position=Py_ssize_t, place=Py_ssize_t, byte=cython.uint)
    cdef bint _skip_varint(
        self, const unsigned char[::1] data, Py_ssize_t end
    ) except -1

    @cython.locals(size=cython.longlong)
    cdef inline int64_t _varint_bytes(self, int64_t value) except -1

    @cython.locals(size=Py_ssize_t)
    cdef inline Py_ssize_t _size(
        self, const unsigned char[::1] data, Py_ssize_t position
    ) except -1
