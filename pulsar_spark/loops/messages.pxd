# SPDX-License-Identifier: Apache-2.0
# The types of messages.py, for Cython.

cimport cython

from pulsar_spark.loops cimport fact
from spark_topics.loops cimport memory

cdef Py_ssize_t _MAX_VARINT_BYTES
cdef Py_ssize_t _MAX_COMPARED
cdef unsigned int _HAS_KEY
cdef unsigned int _KEY_IS_BASE64
cdef unsigned int _HAS_ORDERING_KEY
cdef unsigned int _HAS_EVENT_TIME
cdef unsigned int _IS_NULL
cdef Py_ssize_t _MIN_MESSAGE_BYTES
cdef Py_ssize_t _MOST_ENCRYPTION_KEYS
cdef Py_ssize_t _MAX_ID_BYTES
cdef unsigned long long _MASK_32
cdef unsigned long long _MASK_64

@cython.final
cdef class BinaryColumn:
    cdef readonly unsigned char[::1] data
    cdef readonly int[::1] offsets
    cdef object _allocate
    cdef Py_ssize_t _room
    cdef Py_ssize_t _rows_room

    cpdef BinaryColumn empty_like(self, Py_ssize_t rows)

    cdef int _make_row_room(self, Py_ssize_t rows, Py_ssize_t count) except -1

    @cython.locals(
        data=cython.uchar[::1], offsets=cython.int[::1], most=Py_ssize_t,
        end=Py_ssize_t, row=Py_ssize_t, value=cython.uint,
        head_size=Py_ssize_t, tail_size=Py_ssize_t,
    )
    cpdef append_numbered(
        self,
        Py_ssize_t rows,
        const unsigned char[::1] head,
        int[::1] numbers,
        Py_ssize_t first,
        Py_ssize_t last,
        const unsigned char[::1] tail,
    )

    @cython.locals(
        data=cython.uchar[::1], offsets=cython.int[::1], count=Py_ssize_t,
        part_size=Py_ssize_t, end=Py_ssize_t, most=Py_ssize_t, room=Py_ssize_t,
        entry=Py_ssize_t, offset=Py_ssize_t, last_row=Py_ssize_t,
        batch_size=cython.longlong, head=Py_ssize_t, head_size=Py_ssize_t,
    )
    cpdef append_ids(
        self,
        Py_ssize_t rows,
        long long[::1] facts,
        Py_ssize_t first,
        Py_ssize_t last,
        const unsigned char[::1] partition,
        int[::1] numbers,
        Py_ssize_t row,
    )

    @cython.locals(
        data=cython.uchar[::1], offsets=cython.int[::1], room=Py_ssize_t,
        end=Py_ssize_t, number=Py_ssize_t, start=Py_ssize_t, size=Py_ssize_t,
    )
    cpdef append(
        self,
        Py_ssize_t rows,
        const unsigned char[::1] payload,
        int[::1] bounds,
        Py_ssize_t count,
    )

cdef inline Py_ssize_t _put_varint(
    unsigned char[::1] data, Py_ssize_t position, unsigned long long value
) except -1

@cython.locals(
    size=Py_ssize_t, fields=cython.uchar[::1], properties=cython.uchar[::1],
    others_end=Py_ssize_t, properties_end=Py_ssize_t, position=Py_ssize_t,
    start=Py_ssize_t, content=Py_ssize_t, keys=Py_ssize_t, tag=cython.ulonglong,
    length=cython.ulonglong, byte=cython.ulonglong, shift=cython.uint,
    kind=cython.uint,
)
cpdef tuple split_metadata(const unsigned char[::1] data)

@cython.locals(
    size=Py_ssize_t, position=Py_ssize_t, total=Py_ssize_t, length=Py_ssize_t,
    token=cython.uint, byte=cython.uint,
)
cpdef Py_ssize_t lz4_size(const unsigned char[::1] data) except -2

@cython.final
cdef class MessageTable:
    cdef readonly Py_ssize_t rows
    cdef readonly Py_ssize_t pairs
    cdef readonly unsigned int any_flags
    cdef readonly unsigned int all_flags
    cdef readonly BinaryColumn values
    cdef readonly BinaryColumn keys
    cdef readonly BinaryColumn ordering_keys
    cdef readonly BinaryColumn pair_keys
    cdef readonly BinaryColumn pair_values
    cdef readonly unsigned long long[::1] event_times
    cdef readonly unsigned long long[::1] sequence_ids
    cdef readonly int[::1] batch_indexes
    cdef readonly unsigned char[::1] flags
    cdef readonly long long[::1] ends
    cdef readonly int[::1] pair_ends
    cdef public Py_ssize_t max_head_bytes
    cdef public Py_ssize_t max_pairs
    cdef readonly Py_ssize_t next_position
    cdef readonly bint is_full
    cdef dict _names
    cdef Py_ssize_t _names_from
    cdef object _allocate
    cdef int[::1] _value_bounds
    cdef int[::1] _key_bounds
    cdef int[::1] _ordering_key_bounds
    cdef int[::1] _pair_key_bounds
    cdef int[::1] _pair_value_bounds
    cdef Py_ssize_t _batch_room
    cdef Py_ssize_t _room
    cdef Py_ssize_t _pair_room
    cdef Py_ssize_t _position

    @cython.locals(
        size=Py_ssize_t, begin=Py_ssize_t, start=Py_ssize_t, index=Py_ssize_t,
        max_pairs=Py_ssize_t,
        head_bytes=Py_ssize_t, head_end=Py_ssize_t, payload_size=Py_ssize_t,
        key_start=Py_ssize_t, key_end=Py_ssize_t,
        ordering_key_start=Py_ssize_t, ordering_key_end=Py_ssize_t,
        end=Py_ssize_t, step=Py_ssize_t, row=Py_ssize_t, taken=Py_ssize_t,
        end_before=cython.longlong, ends=cython.longlong[::1],
        pairs=Py_ssize_t, pairs_before=Py_ssize_t,
        has_size=bint, is_removed=bint, is_base64=bint, is_null=bint,
        has_key=bint, has_ordering_key=bint, has_sequence_id=bint,
        tag=cython.ulonglong, kind=cython.uint, value=cython.ulonglong,
        own_time=cython.ulonglong, own_sequence_id=cython.ulonglong,
        flags=cython.uint, any_flags=cython.uint, all_flags=cython.uint,
        value_bounds=cython.int[::1], key_bounds=cython.int[::1],
        ordering_key_bounds=cython.int[::1], batch_indexes=cython.int[::1],
        event_times=cython.ulonglong[::1], sequence_ids=cython.ulonglong[::1],
        flags_column=cython.uchar[::1], pair_ends=cython.int[::1],
    )
    cpdef append_batch(
        self,
        const unsigned char[::1] payload,
        Py_ssize_t count,
        object retained,
        unsigned long long event_time,
        unsigned long long sequence_id,
        unsigned long long sequence_step,
        Py_ssize_t number=*,
        Py_ssize_t position=*,
        Py_ssize_t most_rows=*,
        Py_ssize_t most_bytes=*,
    )

    cpdef long long size_bytes(self, Py_ssize_t first_row, Py_ssize_t last_row)

    @cython.locals(
        view=object, entry=Py_ssize_t, offset=Py_ssize_t, count=cython.longlong,
        start=Py_ssize_t, end=Py_ssize_t, codec=cython.longlong, size=cython.longlong,
        row=Py_ssize_t, rows=cython.longlong, checked=object,
        unpacked_bytes=cython.longlong,
    )
    cpdef Py_ssize_t append_entries(
        self,
        const unsigned char[::1] data,
        long long[::1] facts,
        Py_ssize_t first,
        Py_ssize_t last,
        Py_ssize_t most_rows,
        Py_ssize_t most_bytes,
        object checksum,
        object unpack,
    ) except -1

    @cython.locals(
        count=cython.longlong, rows=Py_ssize_t, pairs=Py_ssize_t, taken=Py_ssize_t,
        any_flags=cython.uint, all_flags=cython.uint,
    )
    cdef bint _append_all(
        self, const unsigned char[::1] payload, long long[::1] facts, Py_ssize_t offset
    ) except -1

    @cython.locals(
        pairs=Py_ssize_t, metadata=Py_ssize_t, metadata_end=Py_ssize_t,
        flags=cython.uint, marks=cython.longlong, row=Py_ssize_t, size=cython.longlong,
    )
    cdef bint _append_single(
        self,
        const unsigned char[::1] data,
        const unsigned char[::1] payload,
        Py_ssize_t start,
        Py_ssize_t end,
        long long[::1] facts,
        Py_ssize_t offset,
    ) except -1

    @cython.locals(
        pairs=Py_ssize_t, position=Py_ssize_t, tag=cython.ulonglong,
        size=cython.ulonglong,
    )
    cdef Py_ssize_t _read_pairs(
        self, const unsigned char[::1] data, Py_ssize_t start, Py_ssize_t end
    ) except -1

    cdef int _append_bytes(
        self,
        const unsigned char[::1] payload,
        const unsigned char[::1] heads,
        Py_ssize_t count,
        Py_ssize_t pairs,
    ) except -1

    @cython.locals(
        position=Py_ssize_t, size=cython.ulonglong,
        tag=cython.ulonglong, kind=cython.uint,
        key_start=Py_ssize_t, key_end=Py_ssize_t,
        value_start=Py_ssize_t, value_end=Py_ssize_t,
    )
    cdef int _read_pair(
        self,
        const unsigned char[::1] payload,
        Py_ssize_t start,
        Py_ssize_t end,
        Py_ssize_t pair,
        Py_ssize_t number,
        Py_ssize_t count,
    ) except -1

    @cython.locals(
        bounds=cython.int[::1], values=cython.int[::1], start=Py_ssize_t,
        end=Py_ssize_t, begin=Py_ssize_t, other=Py_ssize_t, same=Py_ssize_t,
        pair_of_name=Py_ssize_t,
    )
    cdef bint _is_new_name(
        self,
        const unsigned char[::1] payload,
        Py_ssize_t first,
        Py_ssize_t pair,
    ) except -1

    @cython.locals(
        position=Py_ssize_t, value=cython.ulonglong, byte=cython.ulonglong,
        shift=cython.uint,
    )
    cdef inline unsigned long long _varint(
        self,
        const unsigned char[::1] payload,
        Py_ssize_t end,
        Py_ssize_t number,
        Py_ssize_t count,
    ) except? 0
