# SPDX-License-Identifier: Apache-2.0
"""Prints the interpreters of this machine, or of ``PYTHONS``, but for this one.

With ``--until UNIX-TIME`` those are left out, and named, that would begin later.
"""

from __future__ import annotations

import argparse
import sys
import time

from tests.packaging.wheels import chosen_pythons


def main(arguments: list[str]) -> int:
    """Print a path for each interpreter that there is time for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--until", type=float, default=float("inf"))
    # What is for pytest comes along.
    until = parser.parse_known_args(arguments)[0].until
    own = "{}.{}".format(*sys.version_info)
    for version, python in chosen_pythons().items():
        if version != own:
            if time.time() < until:
                sys.stdout.write(f"{python}\n")
            else:
                sys.stderr.write(f"Python {version}: left out for want of time\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
