# SPDX-License-Identifier: Apache-2.0
"""A write, as Spark's writers drive it."""
