# SPDX-License-Identifier: Apache-2.0
# The types of chunks.py, for Cython.

cimport cython

from spark_topics.loops cimport memory

cdef Py_ssize_t _CHUNK_BYTES
cdef Py_ssize_t _BUFFER_BYTES
cdef Py_ssize_t _SMALL_BYTES
cdef int _LENGTH_BYTES

@cython.final
cdef class ChunkJoiner:
    cdef readonly Py_ssize_t chunks_left
    cdef readonly Py_ssize_t size
    cdef readonly Py_ssize_t length
    cdef Py_ssize_t _max_bytes
    cdef object _allocate
    cdef object _data
    cdef unsigned char[::1] _bytes
    cdef Py_ssize_t _room
    cdef int _digits

    cpdef begin(self, Py_ssize_t chunks)

    @cython.locals(end=Py_ssize_t, step=Py_ssize_t)
    cpdef Py_ssize_t take(
        self, const unsigned char[::1] data, Py_ssize_t offset
    ) except -2

    cpdef joined(self)

    @cython.locals(room=Py_ssize_t, announced=Py_ssize_t)
    cdef int _make_room(self, Py_ssize_t step) except -1

    cdef int _release(self) except -1
