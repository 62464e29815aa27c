# SPDX-License-Identifier: Apache-2.0
# The types of sends.py, for Cython.

cimport cython

from spark_topics.loops cimport memory

cdef Py_ssize_t _FIXED_BYTES
cdef Py_ssize_t _MAX_RECEIPT_BYTES

@cython.final
cdef class Cursor:
    cdef const unsigned char[::1] data
    cdef Py_ssize_t offset

    @cython.locals(
        value=cython.ulonglong, shift=cython.uint, offset=Py_ssize_t, byte=cython.ulonglong
    )
    cdef unsigned long long number(self, Py_ssize_t end) except? 0

    cdef unsigned long long field(self, unsigned int tag, Py_ssize_t end) except? 0

@cython.final
cdef class Messages:
    cdef object view
    cdef Cursor cursor
    cdef const long long[::1] offsets
    cdef bint has_delivery_times
    cdef const long long[::1] delivery_times
    cdef bint has_hashes
    cdef const unsigned short[::1] hashes

@cython.final
cdef class Packer:
    cdef public unsigned long long next_sequence_id
    cdef readonly Py_ssize_t rows
    cdef readonly object odd_row
    cdef Py_ssize_t _max_entry_bytes
    cdef Py_ssize_t _max_rows
    cdef Py_ssize_t _max_bytes
    cdef Py_ssize_t _max_alone_bytes
    cdef unsigned int _codec
    cdef object _compress
    cdef object _now_ms
    cdef object _encrypt
    cdef const unsigned char[::1] _encryption
    cdef bint _is_numbered
    cdef unsigned long long _first_number
    cdef list _parts
    cdef Py_ssize_t _size_bytes
    cdef unsigned long long _first_row
    cdef unsigned long long _last_row
    cdef int _lowest_hash
    cdef int _highest_hash
    cdef Py_ssize_t _room
    cdef unsigned char[::1] _head
    cdef object _view
    cdef const unsigned char[::1] _txn_of_command
    cdef const unsigned char[::1] _txn_of_metadata
    cdef const unsigned char[::1] _name
    cdef const unsigned char[::1] _schema
    cdef Py_ssize_t _begin_bytes
    # What _fields found.
    cdef Py_ssize_t _head_bytes
    cdef Py_ssize_t _payload_at
    cdef Py_ssize_t _properties_at
    cdef Py_ssize_t _properties_end
    cdef Py_ssize_t _key_at
    cdef Py_ssize_t _key_size
    cdef Py_ssize_t _order_at
    cdef Py_ssize_t _order_size
    cdef bint _has_event_time
    cdef bint _is_base64
    cdef bint _is_null
    cdef bint _has_null_key
    cdef unsigned long long _event_time

    @cython.locals(
        size_bytes=Py_ssize_t, stop=Py_ssize_t, limit=cython.longlong,
        offsets="const long long[::1]",
    )
    cpdef Py_ssize_t add(
        self,
        Messages rows,
        object numbers,
        Py_ssize_t begin,
        Py_ssize_t end,
        list frames,
        Py_ssize_t most_bytes,
    ) except -1

    @cython.locals(
        size_bytes=Py_ssize_t, delivery_time=cython.longlong, start=Py_ssize_t,
        stop=Py_ssize_t,
        sequence_id=cython.ulonglong, offsets="const long long[::1]",
    )
    cpdef Py_ssize_t add_alone(
        self,
        Messages rows,
        object numbers,
        Py_ssize_t begin,
        Py_ssize_t end,
        list frames,
        Py_ssize_t most_bytes,
    ) except -1

    cpdef int mark_last(self, unsigned long long bits) except -1

    @cython.locals(
        rows=Py_ssize_t, lowest=cython.ulonglong, highest=cython.ulonglong
    )
    cpdef Py_ssize_t finish(self, list frames) except -1

    @cython.locals(
        lowest=int, highest=int, number=int, row=Py_ssize_t,
        hashes="const unsigned short[::1]",
    )
    cdef int _widen(self, Messages rows, Py_ssize_t begin, Py_ssize_t end) except -1

    @cython.locals(first=Cursor, offset=Py_ssize_t, metadata_at=Py_ssize_t)
    cdef object _together(
        self,
        object payload,
        Py_ssize_t rows,
        unsigned long long lowest,
        unsigned long long highest,
    )

    @cython.locals(
        source=Cursor, size=Py_ssize_t, is_compressed=bint, offset=Py_ssize_t,
        metadata_at=Py_ssize_t,
    )
    cdef object _alone(
        self,
        Messages rows,
        Py_ssize_t start,
        Py_ssize_t end,
        unsigned long long sequence_id,
        long long delivery_time,
    )

    @cython.locals(
        data="const unsigned char[::1]", size=Py_ssize_t, head_end=Py_ssize_t,
        tag=cython.uint, last_tag=cython.uint, value=cython.ulonglong,
    )
    cdef bint _fields(
        self, Cursor source, Py_ssize_t start, Py_ssize_t end
    ) except? False

    @cython.locals(offset=Py_ssize_t)
    cdef Py_ssize_t _command(
        self, unsigned long long lowest, unsigned long long highest, Py_ssize_t rows
    ) except -1

    cdef Py_ssize_t _describe(
        self, Py_ssize_t offset, unsigned long long lowest
    ) except -1

    @cython.locals(start=Py_ssize_t, end=Py_ssize_t, size=Py_ssize_t)
    cdef Py_ssize_t _properties(self, Py_ssize_t offset, Cursor source) except -1

    cdef Py_ssize_t _keys(self, Py_ssize_t offset, Cursor source) except -1

    cdef Py_ssize_t _nulls(self, Py_ssize_t offset) except -1

    cdef Py_ssize_t _end(self, Py_ssize_t offset, unsigned long long highest) except -1

    @cython.locals(size=Py_ssize_t, metadata_bytes=Py_ssize_t)
    cdef object _frame(
        self,
        Py_ssize_t metadata_at,
        Py_ssize_t offset,
        object body,
        unsigned long long lowest,
        unsigned long long highest,
        Py_ssize_t rows,
    )

    @cython.locals(fixed=Py_ssize_t)
    cdef int _make_room(self, Py_ssize_t size) except -1

    cdef inline Py_ssize_t _sized(
        self,
        Py_ssize_t offset,
        unsigned int tag,
        unsigned int more,
        Cursor source,
        Py_ssize_t start,
        Py_ssize_t size,
    ) except -1

    cdef inline Py_ssize_t _put(
        self, Py_ssize_t offset, unsigned int tag, unsigned long long number
    ) except -1

    cdef inline Py_ssize_t _put_long(
        self, Py_ssize_t offset, unsigned int tag, unsigned long long number
    ) except -1

    cdef inline Py_ssize_t _put_longer(
        self, Py_ssize_t offset, unsigned int tag, unsigned long long number
    ) except -1

    cdef inline Py_ssize_t _varint(
        self, Py_ssize_t offset, unsigned long long number
    ) except -1

    cdef inline int _put_size(self, Py_ssize_t offset, unsigned int size) except -1

    cdef inline Py_ssize_t _copy(
        self,
        Py_ssize_t offset,
        const unsigned char[::1] data,
        Py_ssize_t start,
        Py_ssize_t size,
    ) except -1

    @cython.locals(middle=Py_ssize_t)
    cdef inline Py_ssize_t _last_below(
        self,
        const long long[::1] offsets,
        long long limit,
        Py_ssize_t first,
        Py_ssize_t last,
    ) except -1

@cython.locals(
    source=Cursor, total=Py_ssize_t, begin=Py_ssize_t, end=Py_ssize_t,
    size=Py_ssize_t, producer_id=cython.ulonglong, sequence_id=cython.ulonglong,
    place_end=cython.longlong, ledger_id=cython.ulonglong, entry_id=cython.ulonglong,
)
cpdef tuple read_receipts(const unsigned char[::1] data)

cdef long long _signed(unsigned long long number) noexcept
