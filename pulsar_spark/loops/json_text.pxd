# SPDX-License-Identifier: Apache-2.0
# The characters of json_text.py, for Cython, and its functions in C: they are a part of
# each module that cimports them.

from cpython.object cimport PyObject
from libc.string cimport memcmp, memcpy

from pulsar_spark.loops cimport avro

cdef extern from "Python.h":
    PyObject* PyList_GET_ITEM(list items, Py_ssize_t number)
    double PyOS_string_to_double(const char* text, char** end, void* error) except? -1

cdef extern from *:
    """
    static const double TENS[] = {
        1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11,
        1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22,
    };
    """
    const double TENS[23]

cdef enum:
    TAB = 9
    LINE_FEED = 10
    RETURN = 13
    SPACE = 32
    QUOTE = 34
    PLUS = 43
    COMMA = 44
    MINUS = 45
    POINT = 46
    SLASH = 47
    ZERO = 48
    NINE = 57
    COLON = 58
    EQUALS = 61
    UPPER_A = 65
    UPPER_I = 73
    UPPER_N = 78
    UPPER_T = 84
    UPPER_Z = 90
    OPEN_ARRAY = 91
    BACKSLASH = 92
    CLOSE_ARRAY = 93
    LOWER_A = 97
    LOWER_B = 98
    LOWER_E = 101
    LOWER_F = 102
    LOWER_N = 110
    LOWER_R = 114
    LOWER_T = 116
    LOWER_U = 117
    LOWER_Z = 122
    OPEN_OBJECT = 123
    CLOSE_OBJECT = 125

cdef inline Py_ssize_t text_end(avro.Source source, Py_ssize_t offset) except? -1:
    cdef const unsigned char* byte
    cdef const unsigned char* end
    if offset >= source.end:
        return offset
    source.data[source.end - 1]  # for the bounds checks
    byte = &source.data[offset]
    end = byte + (source.end - offset)
    while byte < end and byte[0] >= SPACE and byte[0] != QUOTE and byte[0] != BACKSLASH:
        byte += 1
    return source.end - (end - byte)

cdef inline bint is_same(
    avro.Source names, Py_ssize_t start, avro.Source source, Py_ssize_t offset,
    Py_ssize_t size,
) except? False:
    if size == 0:
        return True
    names.data[start + size - 1]  # for the bounds checks
    source.data[offset + size - 1]
    return memcmp(&names.data[start], &source.data[offset], size) == 0

cdef inline double scaled(unsigned long long digits, Py_ssize_t power) noexcept:
    if power < 0:
        return <double>digits / TENS[-power]
    return <double>digits * TENS[power]

cdef inline double as_float(
    avro.Source source, Py_ssize_t offset, Py_ssize_t end
) except? -1:
    cdef char digits[64]
    cdef Py_ssize_t size = end - offset
    source.data[end - 1]  # for the bounds checks
    memcpy(digits, &source.data[offset], size)
    digits[size] = 0
    return PyOS_string_to_double(digits, NULL, NULL)

# Not a copy of a reference, and no check of its type.
cdef inline Py_ssize_t rows_of(list columns, Py_ssize_t number) noexcept:
    return (<avro.Column>PyList_GET_ITEM(columns, number)).rows

cdef inline Py_ssize_t read_with(
    list readers, Py_ssize_t number, avro.Source source, Py_ssize_t offset
) except? -1:
    return (<avro.Reader>PyList_GET_ITEM(readers, number)).read(source, offset)
