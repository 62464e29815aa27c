"""Bytes <-> commands and entries: no socket, clock, thread or Spark."""
