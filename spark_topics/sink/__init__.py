# SPDX-License-Identifier: Apache-2.0
"""Writes, driven by Spark's writers."""
