# SPDX-License-Identifier: Apache-2.0
"""Bytes <-> commands and entries: no socket, clock, thread or Spark."""
