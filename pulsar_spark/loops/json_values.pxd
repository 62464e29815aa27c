# SPDX-License-Identifier: Apache-2.0
# The types of json_values.py, for Cython.

cimport cython

from pulsar_spark.loops cimport avro, json_text
from spark_topics.loops cimport memory

cdef Py_ssize_t _UNUSUAL
cdef Py_ssize_t _REFUSED
cdef Py_ssize_t _MAX_DEPTH
cdef Py_ssize_t _MAX_COMPARED
cdef Py_ssize_t _MAX_DIGITS
cdef Py_ssize_t _MAX_SIGNED_DIGITS
cdef Py_ssize_t _MAX_DECIMAL_DIGITS
cdef unsigned long long _MAX_INT64
cdef unsigned long long _MAX_EXACT
cdef int _MAX_POWER
cdef long long _DAY_SECONDS
cdef long long _SECOND_NANOS

cdef class ReadDocument(avro.Reader):
    cdef avro.StructColumn _column
    cdef avro.Reader _reader
    cdef Py_ssize_t _most_bytes

    @cython.locals(size=Py_ssize_t)
    cdef Py_ssize_t read(self, avro.Source source, Py_ssize_t offset) except? -1

cdef class ReadObject(avro.Reader):
    cdef avro.StructColumn _column
    cdef list _columns
    cdef list _readers
    cdef list _absent
    cdef Py_ssize_t _count
    cdef dict _numbers
    cdef avro.Source _names
    cdef int[::1] _ends
    cdef unsigned char[::1] _is_written

    @cython.locals(
        column=avro.StructColumn, columns=list, row=Py_ssize_t, expected=Py_ssize_t,
        number=Py_ssize_t, end=Py_ssize_t, byte=cython.uint, readers=list,
    )
    cdef Py_ssize_t read(self, avro.Source source, Py_ssize_t offset) except? -1

    @cython.locals(number=Py_ssize_t)
    cdef Py_ssize_t _field(
        self, avro.Source source, Py_ssize_t offset, Py_ssize_t end, Py_ssize_t expected
    ) except? -1

    @cython.locals(start=Py_ssize_t, size=Py_ssize_t)
    cdef bint _is_named(
        self, Py_ssize_t number, avro.Source source, Py_ssize_t offset, Py_ssize_t end
    ) except? False

cdef class ReadArray(avro.Reader):
    cdef avro.ListColumn _column
    cdef avro.Reader _reader
    cdef avro.Reader _absent

    @cython.locals(
        column=avro.ListColumn, items=avro.Column, row=Py_ssize_t, byte=cython.uint
    )
    cdef Py_ssize_t read(self, avro.Source source, Py_ssize_t offset) except? -1

cdef class ReadMap(avro.Reader):
    cdef avro.ListColumn _column
    cdef avro.BytesColumn _keys
    cdef avro.Reader _reader
    cdef avro.Reader _absent

    @cython.locals(
        column=avro.ListColumn, items=avro.Column, row=Py_ssize_t, byte=cython.uint
    )
    cdef Py_ssize_t read(self, avro.Source source, Py_ssize_t offset) except? -1

cdef class ReadFirst(avro.Reader):
    cdef list _readers
    cdef Py_ssize_t _count

    @cython.locals(number=Py_ssize_t, end=Py_ssize_t)
    cdef Py_ssize_t read(self, avro.Source source, Py_ssize_t offset) except? -1

cdef class ReadBranch(avro.Reader):
    cdef avro.Column _scratch
    cdef avro.Reader _own
    cdef avro.Reader _reader

    @cython.locals(end=Py_ssize_t)
    cdef Py_ssize_t read(self, avro.Source source, Py_ssize_t offset) except? -1

cdef class ReadBoolean(avro.Reader):
    cdef avro.FixedColumn _column

    @cython.locals(column=avro.FixedColumn, byte=cython.uint, end=Py_ssize_t)
    cdef Py_ssize_t read(self, avro.Source source, Py_ssize_t offset) except? -1

cdef class ReadWhole(avro.Reader):
    cdef avro.LongColumn _column
    cdef long long _minimum
    cdef long long _maximum
    cdef long long _factor
    cdef long long _divisor

    @cython.locals(column=avro.LongColumn, value=cython.longlong, row=Py_ssize_t)
    cdef Py_ssize_t read(self, avro.Source source, Py_ssize_t offset) except? -1

@cython.final
cdef class Number:
    cdef readonly bint is_negative
    cdef readonly unsigned long long digits
    cdef readonly Py_ssize_t count
    cdef readonly Py_ssize_t fraction
    cdef readonly Py_ssize_t exponent
    cdef readonly bint has_exponent

    @cython.locals(first=Py_ssize_t, digits=cython.ulonglong, byte=cython.uint)
    cdef Py_ssize_t read(self, avro.Source source, Py_ssize_t offset) except? -1

    @cython.locals(first=Py_ssize_t, digits=cython.ulonglong, byte=cython.uint)
    cdef Py_ssize_t _read_fraction(
        self, avro.Source source, Py_ssize_t offset
    ) except? -1

    @cython.locals(
        byte=cython.uint, is_negative=bint, first=Py_ssize_t, exponent=Py_ssize_t
    )
    cdef Py_ssize_t _read_exponent(
        self, avro.Source source, Py_ssize_t offset
    ) except? -1

cdef class ReadFloat(avro.Reader):
    cdef avro.FixedColumn _column
    cdef Number _number

    @cython.locals(
        byte=cython.uint, number=Number, end=Py_ssize_t, power=Py_ssize_t, value=double,
        is_name=bint,
    )
    cdef Py_ssize_t read(self, avro.Source source, Py_ssize_t offset) except? -1

    @cython.locals(byte=cython.uint, end=Py_ssize_t, value=double)
    cdef Py_ssize_t _read_name(self, avro.Source source, Py_ssize_t offset) except? -1

cdef class ReadDecimal(avro.Reader):
    cdef avro.FixedColumn _column
    cdef Py_ssize_t _scale
    cdef object _limit
    cdef list _tens
    cdef long long _small_limit
    cdef bint _is_quoted
    cdef Number _number

    @cython.locals(byte=cython.uint, is_text=bint, number=Number, end=Py_ssize_t)
    cdef Py_ssize_t read(self, avro.Source source, Py_ssize_t offset) except? -1

    @cython.locals(number=Number, zeros=Py_ssize_t, value=cython.longlong)
    cdef bint _put(
        self, avro.Source source, Py_ssize_t offset, Py_ssize_t end
    ) except? False

cdef class ReadText(avro.Reader):
    cdef avro.BytesColumn _column
    cdef bint _takes_numbers
    cdef bint _is_ascii
    cdef Number _number

    @cython.locals(
        column=avro.BytesColumn, byte=cython.uint, row=Py_ssize_t, end=Py_ssize_t
    )
    cdef Py_ssize_t read(self, avro.Source source, Py_ssize_t offset) except? -1

cdef class ReadBase64(avro.Reader):
    cdef avro.BytesColumn _column
    cdef Py_ssize_t _size

    @cython.locals(
        column=avro.BytesColumn, end=Py_ssize_t, stop=Py_ssize_t, row=Py_ssize_t,
        place=Py_ssize_t, room=Py_ssize_t, missing=int, bits=int, number=int,
    )
    cdef Py_ssize_t read(self, avro.Source source, Py_ssize_t offset) except? -1

cdef class ReadSymbol(avro.Reader):
    cdef avro.BytesColumn _column
    cdef frozenset _symbols
    cdef Number _number

    @cython.locals(end=Py_ssize_t, size=Py_ssize_t)
    cdef Py_ssize_t read(self, avro.Source source, Py_ssize_t offset) except? -1

cdef class ReadMoment(avro.Reader):
    cdef avro.LongColumn _column
    cdef ReadWhole _whole
    cdef bint _is_time
    cdef bint _has_seconds
    cdef long long _unit
    cdef long long _per_second
    cdef long long _most_seconds
    cdef long long _minimum
    cdef long long _maximum
    cdef Number _number
    cdef long long _seconds
    cdef long long _nanos
    cdef long long[::1] _parts

    @cython.locals(byte=cython.uint, end=Py_ssize_t)
    cdef Py_ssize_t read(self, avro.Source source, Py_ssize_t offset) except? -1

    @cython.locals(
        number=Number, end=Py_ssize_t, seconds=cython.longlong, nanos=cython.longlong
    )
    cdef Py_ssize_t _read_seconds(
        self, avro.Source source, Py_ssize_t offset
    ) except? -1

    @cython.locals(byte=cython.uint)
    cdef Py_ssize_t _read_text(self, avro.Source source, Py_ssize_t offset) except? -1

    @cython.locals(
        year=cython.longlong, month=cython.longlong, day=cython.longlong
    )
    cdef Py_ssize_t _read_day(self, avro.Source source, Py_ssize_t offset) except? -1

    @cython.locals(
        hour=cython.longlong, minute=cython.longlong, second=cython.longlong,
        first=Py_ssize_t, count=int, nanos=cython.longlong,
    )
    cdef Py_ssize_t _read_time(self, avro.Source source, Py_ssize_t offset) except? -1

    @cython.locals(
        byte=cython.uint, hour=cython.longlong, minute=cython.longlong,
        shift=cython.longlong,
    )
    cdef Py_ssize_t _read_zone(self, avro.Source source, Py_ssize_t offset) except? -1

    @cython.locals(
        count=Py_ssize_t, number=Py_ssize_t, byte=cython.uint, value=cython.longlong,
        first=Py_ssize_t, seconds=cython.longlong, hour=cython.longlong,
        minute=cython.longlong, second=cython.longlong, nanos=cython.longlong,
    )
    cdef Py_ssize_t _read_parts(self, avro.Source source, Py_ssize_t offset) except? -1

    @cython.locals(value=cython.longlong, column=avro.LongColumn)
    cdef bint _put(self, long long seconds, long long nanos) except? False

cdef bint _is_digit(unsigned int byte) noexcept

cdef unsigned int _byte(avro.Source source, Py_ssize_t offset) except? 0

@cython.locals(byte=cython.uint)
cdef Py_ssize_t _next(avro.Source source, Py_ssize_t offset) except? -1

cdef Py_ssize_t _behind_colon(avro.Source source, Py_ssize_t offset) except? -1

@cython.locals(end=Py_ssize_t)
cdef Py_ssize_t _read_or_null(
    avro.Reader reader, avro.Reader absent, avro.Source source, Py_ssize_t offset
) except? -1

@cython.locals(size=Py_ssize_t, number=Py_ssize_t)
cdef Py_ssize_t _word(avro.Source source, Py_ssize_t offset, bytes word) except? -1

@cython.locals(end=Py_ssize_t)
cdef Py_ssize_t _plain_end(avro.Source source, Py_ssize_t offset) except? -1

@cython.locals(end=Py_ssize_t)
cdef Py_ssize_t _skip_text(avro.Source source, Py_ssize_t offset) except? -1

@cython.locals(byte=cython.uint)
cdef Py_ssize_t _escape_end(avro.Source source, Py_ssize_t offset) except? -1

cdef unsigned int _escaped(unsigned int byte) noexcept

@cython.locals(value=int, byte=cython.uint, number=int, digit=int)
cdef int _hex(avro.Source source, Py_ssize_t offset) except? -1

@cython.locals(begin=Py_ssize_t, end=Py_ssize_t)
cdef Py_ssize_t _text(
    avro.BytesColumn column, avro.Source source, Py_ssize_t offset
) except? -1

@cython.locals(
    end=Py_ssize_t, row=Py_ssize_t, place=Py_ssize_t, room=Py_ssize_t, byte=cython.uint,
    code=int, low=int,
)
cdef Py_ssize_t _put_escaped(
    avro.BytesColumn column, avro.Source source, Py_ssize_t offset
) except? -1

cdef Py_ssize_t _put_character(
    avro.BytesColumn column, Py_ssize_t place, int code
) except? -1

@cython.locals(place=Py_ssize_t)
cdef bint _is_ascii(avro.BytesColumn column, Py_ssize_t row) except? False

@cython.locals(byte=cython.uint, end=Py_ssize_t)
cdef Py_ssize_t _number_text(
    avro.BytesColumn column, Number number, avro.Source source, Py_ssize_t offset
) except? -1

cdef int _missing(avro.Source source, Py_ssize_t end) except? -1

@cython.locals(bits=int, number=int, sextet=int)
cdef int _bits(avro.Source source, Py_ssize_t offset, int count) except? -1

cdef int _sextet(unsigned int byte) noexcept

@cython.locals(
    byte=cython.uint, is_negative=bint, first=Py_ssize_t, value=cython.ulonglong,
    count=Py_ssize_t, number=cython.longlong,
)
cdef long long _whole(avro.Source source, Py_ssize_t offset) except? 0x7FFFFFFFFFFFFFFF

@cython.locals(value=int, number=int, byte=cython.uint)
cdef int _digits(avro.Source source, Py_ssize_t offset, int count) except? -1

@cython.locals(byte=cython.uint)
cdef Py_ssize_t _skip(
    avro.Source source, Py_ssize_t offset, Py_ssize_t depth
) except? -1

@cython.locals(is_object=bint, close=cython.uint, byte=cython.uint)
cdef Py_ssize_t _skip_nested(
    avro.Source source, Py_ssize_t offset, Py_ssize_t depth
) except? -1

cdef Py_ssize_t _skip_name(avro.Source source, Py_ssize_t offset) except? -1

@cython.locals(first=Py_ssize_t, byte=cython.uint)
cdef Py_ssize_t _skip_number(avro.Source source, Py_ssize_t offset) except? -1

@cython.locals(byte=cython.uint)
cdef Py_ssize_t _digits_end(avro.Source source, Py_ssize_t offset) except? -1

@cython.locals(is_leap=bint)
cdef bint _is_day(long long year, long long month, long long day) noexcept

@cython.locals(of_year=cython.longlong, days=cython.longlong)
cdef long long _days(long long year, long long month, long long day) noexcept

cdef bint _is_time_of_day(
    long long hour, long long minute, long long second, long long nanos
) noexcept

cdef long long _floor(long long value, long long divisor) noexcept
