# SPDX-License-Identifier: Apache-2.0
# The types of requests.py, for Cython.

cimport cython

from pulsar_spark.loops.sends cimport Cursor
from spark_topics.loops cimport memory

cdef unsigned int _FIRST_TAG
cdef int _SUCCESS
cdef int _GET_LAST_MESSAGE_ID_RESPONSE
cdef int _ACK_RESPONSE
cdef Py_ssize_t _LEAST_BYTES
cdef Py_ssize_t _MOST_BYTES
cdef Py_ssize_t _MOST_NUMBER_BYTES
cdef Py_ssize_t _HEAD_BYTES
cdef unsigned long long _MINUS_ONE
cdef unsigned long long _MAX_INT64
cdef unsigned long long _MAX_INT32
cdef unsigned long long _TWO_TO_32

@cython.locals(head="unsigned char[::1]", offset=Py_ssize_t)
cpdef bytes numbers(tuple values)

@cython.locals(
    size=Py_ssize_t, head="unsigned char[::1]", offset=Py_ssize_t,
)
cpdef bytes request_frame(
    unsigned int kind, bytes body, unsigned int tag, unsigned long long number
)

cdef Py_ssize_t _put(
    unsigned char[::1] head, Py_ssize_t offset, unsigned long long number
) except -1

@cython.locals(size=Py_ssize_t)
cdef Py_ssize_t _bytes_of(unsigned long long number) noexcept

cdef int _put_size(
    unsigned char[::1] head, Py_ssize_t offset, unsigned int size
) except -1

@cython.locals(
    source=Cursor, total=Py_ssize_t, begin=Py_ssize_t, end=Py_ssize_t,
    size=Py_ssize_t, kind=int, number=cython.ulonglong, place_end=cython.ulonglong,
    ledger_id=cython.ulonglong, entry_id=cython.ulonglong,
    partition=cython.ulonglong, batch_index=cython.ulonglong,
    batch_size=cython.ulonglong, before_ledger_id=cython.ulonglong,
    before_entry_id=cython.ulonglong,
)
cpdef tuple read_replies(
    const unsigned char[::1] data, object done, object acknowledged, object positions
)

cdef unsigned long long _optional(
    Cursor source, unsigned int tag, Py_ssize_t end, unsigned long long default
) except? 0

cdef long long _signed(unsigned long long number) noexcept

cdef int _int32(unsigned long long number) noexcept
