# SPDX-License-Identifier: Apache-2.0
# The types of avro.py, for Cython.

cimport cython
from libc.string cimport memcmp, memcpy

cdef bint _IS_COMPILED
cdef int _ENDS
cdef int _TOO_LONG
cdef int _NO_ROOM
cdef int _NEGATIVE
cdef int _NOT_UTF8
cdef int _NO_BRANCH
cdef int _NOT_ALLOWED
cdef int _TOO_MANY
cdef int _TOO_DEEP
cdef int _NO_BOOLEAN
cdef int _TOO_LARGE
cdef Py_ssize_t _ITEMS_PER_BYTE
cdef Py_ssize_t _MIN_ITEMS
cdef Py_ssize_t _MAX_DEPTH
cdef Py_ssize_t _MAX_INT32
cdef Py_ssize_t _MAX_COMPARED
cdef Py_ssize_t _MAX_ADVANCE

cdef inline int _memcpy(
    unsigned char[::1] data,
    Py_ssize_t at,
    const unsigned char[::1] source,
    Py_ssize_t start,
    Py_ssize_t size,
) except -1:
    if size > 0:
        data[at + size - 1] = source[start + size - 1]  # for the bounds checks
        memcpy(&data[at], &source[start], size)
    return 0

cdef inline double _float_at(const unsigned char[::1] data, Py_ssize_t at) except? -1:
    cdef float value
    data[at + 3]  # for the bounds checks
    memcpy(&value, &data[at], 4)
    return value

cdef inline int _store_float(
    unsigned char[::1] data, Py_ssize_t at, Py_ssize_t width, double value
) except -1:
    cdef float small
    data[at + width - 1] = 0  # for the bounds checks
    if width == 4:
        small = <float>value
        memcpy(&data[at], &small, 4)
    else:
        memcpy(&data[at], &value, 8)
    return 0

cdef inline bint _is_same(
    const unsigned char[::1] data, const int[::1] offsets, Py_ssize_t one, Py_ssize_t other
) except? False:
    cdef Py_ssize_t size = offsets[one + 1] - offsets[one]
    if offsets[other + 1] - offsets[other] != size:
        return False
    if size == 0:
        return True
    data[offsets[one] + size - 1]  # for the bounds checks
    return memcmp(&data[offsets[one]], &data[offsets[other]], size) == 0

# As the Unicode Standard says in table 3-7, "Well-Formed UTF-8 Byte Sequences".
cdef inline bint _is_utf8(
    const unsigned char[::1] data, Py_ssize_t at, Py_ssize_t size
) except? False:
    cdef const unsigned char* one
    cdef const unsigned char* end
    cdef unsigned long long word
    cdef unsigned char first, second
    if size == 0:
        return True
    data[at + size - 1]  # for the bounds checks
    one = &data[at]
    end = one + size
    while end - one >= 8:
        memcpy(&word, one, 8)
        if word & 0x8080808080808080ULL:
            break
        one += 8
    while one < end:
        first = one[0]
        if first < 0x80:
            one += 1
            continue
        if first < 0xC2 or first > 0xF4 or end - one < 2:
            return False
        second = one[1]
        if second & 0xC0 != 0x80:
            return False
        if first < 0xE0:
            one += 2
            continue
        if end - one < 3 or one[2] & 0xC0 != 0x80:
            return False
        if first < 0xF0:
            if first == 0xE0 and second < 0xA0 or first == 0xED and second > 0x9F:
                return False
            one += 3
            continue
        if end - one < 4 or one[3] & 0xC0 != 0x80:
            return False
        if first == 0xF0 and second < 0x90 or first == 0xF4 and second > 0x8F:
            return False
        one += 4
    return True

@cython.final
cdef class Source:
    cdef const unsigned char[::1] data
    cdef Py_ssize_t begin
    cdef Py_ssize_t end
    cdef Py_ssize_t next
    cdef Py_ssize_t items
    cdef Py_ssize_t depth
    cdef readonly int error
    cdef readonly Py_ssize_t field

    cdef load(self, data)

    @cython.locals(value=cython.ulonglong, shift=cython.uint, byte=cython.ulonglong)
    cdef inline long long number(self, Py_ssize_t at) except? 0

    cdef inline Py_ssize_t fail(self, int error) noexcept

cdef class Column:
    cdef readonly Py_ssize_t rows
    cdef readonly bint has_nulls
    cdef readonly unsigned char[::1] nulls
    cdef Py_ssize_t _room

    cdef int start(self, Py_ssize_t rows) except -1

    @cython.locals(room=Py_ssize_t)
    cdef int reserve(self, Py_ssize_t rows) except -1

    cdef int append_null(self) except -1

    @cython.locals(row=Py_ssize_t)
    cdef int cut(self, Py_ssize_t rows) except -1

    cdef int _clear(self) except -1

    cdef int _resize(self, Py_ssize_t room) except -1

    cdef int _append_nothing(self) except -1

cdef class LongColumn(Column):
    cdef readonly long long[::1] values

cdef class FixedColumn(Column):
    cdef readonly Py_ssize_t width
    cdef readonly unsigned char[::1] data

    @cython.locals(used=Py_ssize_t)
    cdef int _resize(self, Py_ssize_t room) except -1

    @cython.locals(start=Py_ssize_t, at=Py_ssize_t)
    cdef int _append_nothing(self) except -1

cdef class BytesColumn(Column):
    cdef readonly unsigned char[::1] data
    cdef readonly int[::1] offsets
    cdef readonly Py_ssize_t data_room

    @cython.locals(room=Py_ssize_t)
    cdef bint make_room(self, Py_ssize_t size) except? False

cdef class StructColumn(Column):
    cdef readonly list children

    @cython.locals(child=Column)
    cdef int start(self, Py_ssize_t rows) except -1

    @cython.locals(child=Column)
    cdef int _resize(self, Py_ssize_t room) except -1

    @cython.locals(child=Column)
    cdef int _append_nothing(self) except -1

    @cython.locals(child=Column)
    cdef int cut(self, Py_ssize_t rows) except -1

cdef class ListColumn(Column):
    cdef readonly Column items
    cdef readonly int[::1] offsets
    cdef readonly bint has_twins

cdef class Reader:
    cdef readonly Py_ssize_t smallest

    cdef Py_ssize_t read(self, Source source, Py_ssize_t at) except? -1

cdef class Fail(Reader):
    cdef int _error

cdef class ReadNull(Reader):
    cdef Column _column

cdef class ReadLong(Reader):
    cdef LongColumn _column

    @cython.locals(column=LongColumn, value=cython.longlong, row=Py_ssize_t)
    cdef Py_ssize_t read(self, Source source, Py_ssize_t at) except? -1

cdef class ReadNumber(Reader):
    cdef LongColumn _column
    cdef Py_ssize_t _most_bytes
    cdef long long _minimum
    cdef long long _maximum
    cdef long long _factor
    cdef long long _divisor

    @cython.locals(column=LongColumn, value=cython.longlong, row=Py_ssize_t)
    cdef Py_ssize_t read(self, Source source, Py_ssize_t at) except? -1

cdef class ReadNumberAsFloat(Reader):
    cdef FixedColumn _column
    cdef Py_ssize_t _most_bytes

    @cython.locals(value=cython.longlong)
    cdef Py_ssize_t read(self, Source source, Py_ssize_t at) except? -1

cdef class ReadFloatAsDouble(Reader):
    cdef FixedColumn _column

    @cython.locals(value=double)
    cdef Py_ssize_t read(self, Source source, Py_ssize_t at) except? -1

cdef class ReadWidth(Reader):
    cdef FixedColumn _column

    @cython.locals(column=FixedColumn, end=Py_ssize_t, start=Py_ssize_t)
    cdef Py_ssize_t read(self, Source source, Py_ssize_t at) except? -1

cdef class ReadBoolean(Reader):
    cdef FixedColumn _column

    @cython.locals(column=FixedColumn)
    cdef Py_ssize_t read(self, Source source, Py_ssize_t at) except? -1

cdef class ReadBytes(Reader):
    cdef BytesColumn _column
    cdef bint _is_text

    @cython.locals(
        column=BytesColumn, size=cython.longlong, row=Py_ssize_t, begin=Py_ssize_t,
        end=Py_ssize_t,
    )
    cdef Py_ssize_t read(self, Source source, Py_ssize_t at) except? -1

cdef class ReadFixed(Reader):
    cdef BytesColumn _column
    cdef Py_ssize_t _size

cdef class ReadEnum(Reader):
    cdef BytesColumn _column
    cdef Py_ssize_t _count
    cdef const unsigned char[::1] _texts
    cdef int[::1] _ends
    cdef unsigned char[::1] _is_known

    @cython.locals(index=cython.longlong, start=Py_ssize_t, size=Py_ssize_t)
    cdef Py_ssize_t read(self, Source source, Py_ssize_t at) except? -1

cdef class ReadDecimal(Reader):
    cdef FixedColumn _column
    cdef Py_ssize_t _size
    cdef object _factor
    cdef object _divisor
    cdef object _limit
    cdef bint _has_small_limit
    cdef long long _small_limit
    cdef bint _is_simple

    @cython.locals(size=cython.longlong, end=Py_ssize_t, value=cython.longlong)
    cdef Py_ssize_t read(self, Source source, Py_ssize_t at) except? -1

cdef class ReadUnion(Reader):
    cdef list _branches
    cdef Py_ssize_t _count

    @cython.locals(index=cython.longlong, branch=Reader)
    cdef Py_ssize_t read(self, Source source, Py_ssize_t at) except? -1

cdef class ReadMember(Reader):
    cdef StructColumn _column
    cdef Reader _reader
    cdef list _others

    @cython.locals(other=Column)
    cdef Py_ssize_t read(self, Source source, Py_ssize_t at) except? -1

cdef class ReadRecord(Reader):
    cdef StructColumn _column
    cdef list _readers

    @cython.locals(reader=Reader)
    cdef Py_ssize_t read(self, Source source, Py_ssize_t at) except? -1

cdef class ReadItems(Reader):
    cdef ListColumn _column
    cdef Reader _reader
    cdef BytesColumn _keys

    @cython.locals(
        column=ListColumn, items=Column, reader=Reader, row=Py_ssize_t,
        count=cython.longlong, size=cython.longlong,
    )
    cdef Py_ssize_t read(self, Source source, Py_ssize_t at) except? -1

cdef class ReadConstant(Reader):
    cdef Reader _reader
    cdef Source _source

cdef class SkipNumber(Reader):
    pass

cdef class SkipWidth(Reader):
    cdef Py_ssize_t _width

cdef class SkipBytes(Reader):
    @cython.locals(size=cython.longlong)
    cdef Py_ssize_t read(self, Source source, Py_ssize_t at) except? -1

cdef class SkipRecord(Reader):
    cdef public list readers

    @cython.locals(reader=Reader)
    cdef Py_ssize_t read(self, Source source, Py_ssize_t at) except? -1

cdef class SkipItems(Reader):
    cdef Reader _reader

    @cython.locals(reader=Reader, count=cython.longlong, size=cython.longlong)
    cdef Py_ssize_t read(self, Source source, Py_ssize_t at) except? -1

@cython.final
cdef class Plan:
    cdef readonly Source source
    cdef Reader _reader
    cdef StructColumn _column
    cdef Py_ssize_t _skipped
    cdef bint _reads_empty

    @cython.locals(
        source=Source, column=StructColumn, reader=Reader, rows=Py_ssize_t,
        row=Py_ssize_t, at=Py_ssize_t, end=Py_ssize_t, error=int, field=Py_ssize_t,
    )
    cpdef list run(
        self,
        const unsigned char[::1] data,
        const int[::1] offsets,
        const unsigned char[::1] nulls=*,
    )

@cython.locals(most=Py_ssize_t)
cdef long long _take_items(
    Source source, long long count, Py_ssize_t at, Py_ssize_t smallest
) except? 0

@cython.locals(count=Py_ssize_t, one=Py_ssize_t, other=Py_ssize_t)
cdef bint _has_twins(BytesColumn keys, Py_ssize_t first) except? False

@cython.locals(row=Py_ssize_t, begin=Py_ssize_t, end=Py_ssize_t)
cdef bint _put_bytes(
    BytesColumn column, const unsigned char[::1] data, Py_ssize_t at, Py_ssize_t size
) except? False

@cython.locals(start=Py_ssize_t)
cdef int _put_float(FixedColumn column, double value) except -1

@cython.locals(start=Py_ssize_t, at=Py_ssize_t)
cdef int _put_decimal(FixedColumn column, long long value) except -1

@cython.locals(start=Py_ssize_t, at=Py_ssize_t)
cdef int _put_large_decimal(FixedColumn column, object number) except -1

cdef object _integer(const unsigned char[::1] data, Py_ssize_t at, Py_ssize_t end)
