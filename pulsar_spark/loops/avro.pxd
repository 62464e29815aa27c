# SPDX-License-Identifier: Apache-2.0
# The types of avro.py, for Cython.

cimport cython
from cpython.object cimport PyObject
from libc.string cimport memcmp, memcpy

from spark_topics.loops.memory cimport _is_utf8_text

cdef extern from "Python.h":
    PyObject* PyList_GET_ITEM(list readers, Py_ssize_t number)

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
cdef Py_ssize_t _MIN_FILLED_ITEMS
cdef Py_ssize_t _MAX_DEPTH
cdef Py_ssize_t _MAX_INT32
cdef Py_ssize_t _MAX_COMPARED
cdef Py_ssize_t _MAX_ADVANCE

@cython.final
cdef class Source:
    cdef const unsigned char[::1] data
    cdef Py_ssize_t begin
    cdef Py_ssize_t end
    cdef Py_ssize_t next
    cdef Py_ssize_t items
    cdef Py_ssize_t filled
    cdef Py_ssize_t depth
    cdef readonly int error
    cdef readonly Py_ssize_t field

    cdef load(self, data)

    # What stands for an error is not 0, which is common.
    @cython.locals(value=cython.ulonglong, shift=cython.uint, byte=cython.ulonglong)
    cdef long long _long_number(self, Py_ssize_t offset) except? 0x7FFFFFFFFFFFFFFF

    @cython.locals(byte=cython.ulonglong)
    cdef inline long long number(self, Py_ssize_t offset) except? 0x7FFFFFFFFFFFFFFF

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

    @cython.locals(start=Py_ssize_t, offset=Py_ssize_t)
    cdef int _append_nothing(self) except -1

cdef class BytesColumn(Column):
    cdef readonly unsigned char[::1] data
    cdef readonly int[::1] offsets
    cdef readonly Py_ssize_t data_room
    cdef Py_ssize_t _most

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
    cdef readonly Py_ssize_t most

# Memory of columns and values is reached through what has it: a memoryview as an argument
# would be some hundred bytes, copied and cleared for each value.

cdef inline double _float_at(Source source, Py_ssize_t offset) except? -1:
    cdef float value
    source.data[offset + 3]  # for the bounds checks
    memcpy(&value, &source.data[offset], 4)
    return value

cdef inline int _store_float(FixedColumn column, Py_ssize_t offset, double value) except -1:
    cdef float small
    column.data[offset + column.width - 1] = 0  # for the bounds checks
    if column.width == 4:
        small = <float>value
        memcpy(&column.data[offset], &small, 4)
    else:
        memcpy(&column.data[offset], &value, 8)
    return 0

cdef inline int _copy_fixed(
    FixedColumn column, Py_ssize_t begin, Source source, Py_ssize_t offset
) except -1:
    column.data[begin + column.width - 1] = source.data[offset + column.width - 1]
    if column.width == 8:  # so that it is a single instruction
        memcpy(&column.data[begin], &source.data[offset], 8)
    else:
        memcpy(&column.data[begin], &source.data[offset], column.width)
    return 0

cdef inline int _copy_bytes(
    BytesColumn column, Py_ssize_t begin, Source source, Py_ssize_t offset, Py_ssize_t size
) except -1:
    if size == 0:
        return 0
    column.data[begin + size - 1] = source.data[offset + size - 1]  # for the bounds checks
    if (
        size <= 16
        and column.data.shape[0] - begin >= 16
        and source.data.shape[0] - offset >= 16
    ):  # faster than as many as there are: what follows is written later, or unused
        memcpy(&column.data[begin], &source.data[offset], 16)
    else:
        memcpy(&column.data[begin], &source.data[offset], size)
    return 0

cdef inline bint _is_same(
    BytesColumn column, Py_ssize_t one, Py_ssize_t other
) except? False:
    cdef Py_ssize_t first = column.offsets[one]
    cdef Py_ssize_t second = column.offsets[other]
    cdef Py_ssize_t size = column.offsets[one + 1] - first
    if column.offsets[other + 1] - second != size:
        return False
    if size == 0:
        return True
    column.data[first + size - 1]  # for the bounds checks
    return memcmp(&column.data[first], &column.data[second], size) == 0

cdef inline bint _are_some_same(BytesColumn keys, Py_ssize_t first) except? False:
    cdef Py_ssize_t one, other
    for one in range(first + 1, keys.rows):
        for other in range(first, one):
            if _is_same(keys, one, other):
                return True
    return False

cdef inline bint _is_utf8(Source source, Py_ssize_t offset, Py_ssize_t size) except? False:
    if size == 0:
        return True
    source.data[offset + size - 1]  # for the bounds checks
    return _is_utf8_text(&source.data[offset], size)

cdef class Reader:
    cdef public Py_ssize_t smallest

    cdef Py_ssize_t read(self, Source source, Py_ssize_t offset) except? -1

# Not a copy of the reference, and no check of its type.
cdef inline Py_ssize_t _read(
    list readers, Py_ssize_t number, Source source, Py_ssize_t offset
) except? -1:
    return (<Reader>PyList_GET_ITEM(readers, number)).read(source, offset)

cdef class Fail(Reader):
    cdef int _error

cdef class ReadNull(Reader):
    cdef Column _column

cdef class ReadLong(Reader):
    cdef LongColumn _column

    @cython.locals(column=LongColumn, value=cython.longlong, row=Py_ssize_t)
    cdef Py_ssize_t read(self, Source source, Py_ssize_t offset) except? -1

cdef class ReadNumber(Reader):
    cdef LongColumn _column
    cdef Py_ssize_t _most_bytes
    cdef long long _minimum
    cdef long long _maximum
    cdef long long _factor
    cdef long long _divisor

    @cython.locals(column=LongColumn, value=cython.longlong, row=Py_ssize_t)
    cdef Py_ssize_t read(self, Source source, Py_ssize_t offset) except? -1

cdef class ReadNumberAsFloat(Reader):
    cdef FixedColumn _column
    cdef Py_ssize_t _most_bytes
    cdef long long _minimum
    cdef long long _maximum

    @cython.locals(value=cython.longlong)
    cdef Py_ssize_t read(self, Source source, Py_ssize_t offset) except? -1

cdef class ReadFloatAsDouble(Reader):
    cdef FixedColumn _column

    @cython.locals(value=double)
    cdef Py_ssize_t read(self, Source source, Py_ssize_t offset) except? -1

cdef class ReadWidth(Reader):
    cdef FixedColumn _column

    @cython.locals(column=FixedColumn, end=Py_ssize_t, start=Py_ssize_t)
    cdef Py_ssize_t read(self, Source source, Py_ssize_t offset) except? -1

cdef class ReadBoolean(Reader):
    cdef FixedColumn _column

    @cython.locals(column=FixedColumn)
    cdef Py_ssize_t read(self, Source source, Py_ssize_t offset) except? -1

cdef class ReadBytes(Reader):
    cdef BytesColumn _column
    cdef bint _is_text

    @cython.locals(
        column=BytesColumn, size=cython.longlong, row=Py_ssize_t, begin=Py_ssize_t,
        end=Py_ssize_t,
    )
    cdef Py_ssize_t read(self, Source source, Py_ssize_t offset) except? -1

cdef class ReadFixed(Reader):
    cdef BytesColumn _column
    cdef Py_ssize_t _size

cdef class ReadEnum(Reader):
    cdef BytesColumn _column
    cdef Py_ssize_t _count
    cdef Source _texts
    cdef int[::1] _ends
    cdef unsigned char[::1] _is_known

    @cython.locals(index=cython.longlong, start=Py_ssize_t, size=Py_ssize_t)
    cdef Py_ssize_t read(self, Source source, Py_ssize_t offset) except? -1

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
    cdef Py_ssize_t read(self, Source source, Py_ssize_t offset) except? -1

cdef class ReadUnion(Reader):
    cdef list _branches
    cdef Py_ssize_t _count

    @cython.locals(index=cython.longlong)
    cdef Py_ssize_t read(self, Source source, Py_ssize_t offset) except? -1

cdef class ReadMember(Reader):
    cdef StructColumn _column
    cdef Reader _reader
    cdef list _others

    @cython.locals(other=Column)
    cdef Py_ssize_t read(self, Source source, Py_ssize_t offset) except? -1

cdef class ReadRecord(Reader):
    cdef StructColumn _column
    cdef list _readers
    cdef Py_ssize_t _count

    @cython.locals(number=Py_ssize_t)
    cdef Py_ssize_t read(self, Source source, Py_ssize_t offset) except? -1

cdef class ReadItems(Reader):
    cdef ListColumn _column
    cdef Reader _reader
    cdef BytesColumn _keys
    cdef long long _weight

    @cython.locals(
        column=ListColumn, items=Column, reader=Reader, row=Py_ssize_t,
        count=cython.longlong, size=cython.longlong,
    )
    cdef Py_ssize_t read(self, Source source, Py_ssize_t offset) except? -1

cdef class ReadConstant(Reader):
    cdef Reader _reader
    cdef Source _source

cdef class SkipNumber(Reader):
    pass

cdef class SkipWidth(Reader):
    cdef Py_ssize_t _width

cdef class SkipBytes(Reader):
    @cython.locals(size=cython.longlong)
    cdef Py_ssize_t read(self, Source source, Py_ssize_t offset) except? -1

cdef class SkipRecord(Reader):
    cdef public list readers

    @cython.locals(reader=Reader)
    cdef Py_ssize_t read(self, Source source, Py_ssize_t offset) except? -1

cdef class SkipItems(Reader):
    cdef Reader _reader

    @cython.locals(reader=Reader, count=cython.longlong, size=cython.longlong)
    cdef Py_ssize_t read(self, Source source, Py_ssize_t offset) except? -1

@cython.final
cdef class Plan:
    cdef readonly Source source
    cdef Reader _reader
    cdef StructColumn _column
    cdef Py_ssize_t _skipped
    cdef bint _reads_empty

    @cython.locals(
        source=Source, column=StructColumn, reader=Reader, rows=Py_ssize_t,
        row=Py_ssize_t, offset=Py_ssize_t, end=Py_ssize_t, error=int, field=Py_ssize_t,
    )
    cpdef list run(
        self,
        const unsigned char[::1] data,
        const int[::1] offsets,
        const unsigned char[::1] nulls=*,
    )

@cython.locals(most=Py_ssize_t)
cdef long long _take_items(
    Source source, long long count, Py_ssize_t offset, Py_ssize_t smallest,
    long long weight
) except? 0

@cython.locals(count=Py_ssize_t)
cdef bint has_twins(BytesColumn keys, Py_ssize_t first) except? False

@cython.locals(row=Py_ssize_t, begin=Py_ssize_t, end=Py_ssize_t)
cdef bint put_bytes(
    BytesColumn column, Source source, Py_ssize_t offset, Py_ssize_t size
) except? False

@cython.locals(start=Py_ssize_t)
cdef int put_float(FixedColumn column, double value) except -1

@cython.locals(start=Py_ssize_t, offset=Py_ssize_t)
cdef int put_decimal(FixedColumn column, long long value) except -1

@cython.locals(start=Py_ssize_t, offset=Py_ssize_t)
cdef int put_large_decimal(FixedColumn column, object number) except -1

cdef object _integer(const unsigned char[::1] data, Py_ssize_t offset, Py_ssize_t end)
