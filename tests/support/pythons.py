# SPDX-License-Identifier: Apache-2.0
"""Prints the interpreters of this machine, or of ``PYTHONS``, but for this one."""

from __future__ import annotations

import sys

from tests.packaging.wheels import chosen_pythons

if __name__ == "__main__":
    own = "{}.{}".format(*sys.version_info)
    for version, python in chosen_pythons().items():
        if version != own:
            sys.stdout.write(f"{python}\n")
