# SPDX-License-Identifier: Apache-2.0
"""CRC-32C, which guards the bytes of entries.

The package ``crc32c`` looks up its own version when it is imported. Python searches the
folders and archives of its path for that, and parses what it finds as an e-mail, which
takes longer than all other imports of a planning process. Each query waits for several
new processes, so the function comes from the extension module alone.
"""

from __future__ import annotations

from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def load(folders: Sequence[str]) -> Callable[..., int]:
    """Return the function of the extension module, or that of the package.

    Args:
        folders: Where the package is; the extension may be elsewhere in a release that
            is not known here.
    """
    spec = PathFinder.find_spec("crc32c._crc32c", folders)
    if spec is None or spec.loader is None:
        import crc32c as package

        return package.crc32c
    extension = module_from_spec(spec)
    spec.loader.exec_module(extension)
    function: Callable[..., int] = extension.crc32c
    return function


_found = find_spec("crc32c")
crc32c = load((_found and _found.submodule_search_locations) or ())
