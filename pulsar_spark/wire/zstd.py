# SPDX-License-Identifier: Apache-2.0
"""ZSTD frames of small payloads, by contexts that are used again.

Arrow makes a context for each payload. That takes 2 to 3 µs, of the 6 µs that it takes
to unpack 100 bytes. With `zstandard`, the package of the extra ``fast``, a context
stays for the next payload.

Arrow alone decides what is valid. Payloads that are larger, damaged or unusual are left
to Arrow, so that results and errors are the same with the extra and without it.
"""

from __future__ import annotations

import functools
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from zstandard import ZstdCompressor, ZstdDecompressor

#: From here on a new context does not show. And a context that compresses grows with
#: payloads: to 0.5 MB with this size, to 1.4 MB without a limit. One that decompresses
#: has 0.1 MB.
_SMALL_BYTES = 64 * 1024

#: Arrow's own.
_LEVEL = 1


class Contexts:
    """Contexts that wait for the next payload, for all threads of a process.

    Two threads must not use a context at the same time. So a call takes a context out
    of the list, or makes a context where the list is empty, and puts it back at the
    end. Thus there are as many as calls were under way together.

    Args:
        library: The module `zstandard`.
    """

    def __init__(self, library: ModuleType) -> None:
        self._error = library.ZstdError
        self._content_size = library.frame_content_size
        self._new_decompressor = library.ZstdDecompressor
        self._new_compressor = functools.partial(library.ZstdCompressor, level=_LEVEL)
        # Threads see pop and append as one step each.
        self._decompressors: list[ZstdDecompressor] = []
        self._compressors: list[ZstdCompressor] = []

    def decompress(self, data: bytes | memoryview, size: int) -> bytes | None:
        """Return the payload; None where Arrow has to look.

        That is wherever `data` is not one whole frame that says this size. The size is
        looked at first, since zstandard would make room for any.
        """
        if not 0 < size <= _SMALL_BYTES:
            return None
        try:
            if self._content_size(data) != size:
                return None
            try:
                context = self._decompressors.pop()
            except IndexError:
                context = self._new_decompressor()
            payload = context.decompress(data, allow_extra_data=False)
        except self._error:
            # The context goes, with the buffers that a frame cut short made it take.
            return None
        self._decompressors.append(context)
        return payload

    def compress(self, data: bytes | memoryview) -> bytes | None:
        """Return the frame that Arrow would make; None where Arrow is to make it."""
        if len(data) > _SMALL_BYTES:
            return None
        try:
            context = self._compressors.pop()
        except IndexError:
            context = self._new_compressor()
        frame = context.compress(data)
        self._compressors.append(context)
        return frame


@functools.cache
def contexts() -> Contexts | None:
    """Return the contexts of this process; None without a fit `zstandard`."""
    # Imported late: most topics need none.
    try:
        import zstandard
    except ImportError:
        return None
    reused = Contexts(zstandard)
    try:
        reused.decompress(zstandard.ZstdCompressor().compress(b"a"), 1)
    except TypeError:  # an old release, which does not know allow_extra_data
        return None
    return reused
