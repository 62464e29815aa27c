# SPDX-License-Identifier: Apache-2.0
"""Adapters to Spark's interfaces."""
