# SPDX-License-Identifier: Apache-2.0
"""The version of this package, alone, so that everything may import it."""

__version__ = "0.1.0"
