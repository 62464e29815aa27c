# SPDX-License-Identifier: Apache-2.0
"""The version of this package, in a module that everything may import."""

__version__ = "0.1.0"
