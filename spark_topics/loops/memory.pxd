# SPDX-License-Identifier: Apache-2.0
# The functions of memory.py in C: they are a part of each module that cimports them.

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.string cimport memcpy

cdef inline int copy(
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

cdef inline bytes part(
    const unsigned char[::1] data, Py_ssize_t start, Py_ssize_t end
):
    if end <= start:
        return b""
    data[end - 1]  # for the bounds checks
    return PyBytes_FromStringAndSize(<const char*>&data[start], end - start)

cdef inline unsigned long long number(
    const unsigned char[::1] data, Py_ssize_t at, Py_ssize_t size
) except? 0:
    cdef unsigned long long value = data[at]
    cdef unsigned long long byte
    cdef Py_ssize_t place
    for place in range(1, size):
        byte = data[at + place]
        value |= byte << (8 * place)
    return value

# Processors that Spark runs on have the least byte first.
cdef inline unsigned long long word(
    const unsigned char[::1] data, Py_ssize_t at
) except? 0:
    cdef unsigned long long value
    data[at + 7]  # for the bounds checks
    memcpy(&value, &data[at], 8)
    return value

# As the Unicode Standard says in table 3-7, "Well-Formed UTF-8 Byte Sequences".
cdef inline bint _is_well_formed(
    const unsigned char* one, const unsigned char* end
) noexcept:
    cdef unsigned char first, second
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

cdef inline bint _is_utf8_text(const unsigned char* one, Py_ssize_t size) noexcept:
    # Words of eight bytes, and the last ones once more together with those before.
    cdef const unsigned char* end = one + size
    cdef unsigned long long word
    cdef unsigned int head, tail
    if size >= 8:
        while end - one >= 8:
            memcpy(&word, one, 8)
            if word & 0x8080808080808080ULL:
                return _is_well_formed(one, end)
            one += 8
        memcpy(&word, end - 8, 8)
        if not word & 0x8080808080808080ULL:
            return True
    elif size >= 4:
        memcpy(&head, one, 4)
        memcpy(&tail, end - 4, 4)
        if not (head | tail) & 0x80808080U:
            return True
    return _is_well_formed(one, end)

cdef inline bint is_text(
    const unsigned char[::1] data, Py_ssize_t at, Py_ssize_t size
) except? False:
    if size == 0:
        return True
    data[at + size - 1]  # for the bounds checks
    return _is_utf8_text(&data[at], size)
