# SPDX-License-Identifier: Apache-2.0
# The types of digests.py, for Cython.

cimport cython

from spark_topics.loops cimport memory

cdef unsigned long long _MASK
cdef unsigned long long _NULL
cdef unsigned long long _FACTOR

cdef unsigned long long _mixed(unsigned long long number) noexcept

@cython.locals(end=Py_ssize_t, second=cython.ulonglong)
cdef unsigned long long _digest_of(
    const unsigned char[::1] data,
    Py_ssize_t offset,
    Py_ssize_t size,
    unsigned long long digest,
) except? 0

@cython.locals(row=Py_ssize_t, bit=Py_ssize_t, has_validity=bint)
cpdef int add_fixed(
    unsigned long long[::1] digests,
    const unsigned char[::1] validity,
    Py_ssize_t first_bit,
    const unsigned char[::1] data,
    Py_ssize_t width,
) except -1

@cython.locals(
    row=Py_ssize_t, bit=Py_ssize_t, has_validity=bint, begin=Py_ssize_t,
    size=Py_ssize_t,
)
cpdef int add_bytes(
    unsigned long long[::1] digests,
    const unsigned char[::1] validity,
    Py_ssize_t first_bit,
    const long long[::1] offsets,
    const unsigned char[::1] data,
) except -1

@cython.locals(
    row=Py_ssize_t, bit=Py_ssize_t, has_validity=bint, item=Py_ssize_t,
    digest=cython.ulonglong,
)
cpdef int add_items(
    unsigned long long[::1] digests,
    const unsigned char[::1] validity,
    Py_ssize_t first_bit,
    const long long[::1] offsets,
    const unsigned long long[::1] items,
) except -1

@cython.locals(row=Py_ssize_t, digest=cython.ulonglong)
cpdef unsigned long long total(const unsigned long long[::1] digests) except? 0
