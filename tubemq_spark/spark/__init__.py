# SPDX-License-Identifier: Apache-2.0
"""Spark's interfaces, and nothing but adaptation to them."""
