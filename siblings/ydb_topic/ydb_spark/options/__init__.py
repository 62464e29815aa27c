# SPDX-License-Identifier: Apache-2.0
"""Spark's map of options -> frozen values."""
