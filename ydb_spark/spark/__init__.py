# SPDX-License-Identifier: Apache-2.0
"""Spark's side: what it calls."""
