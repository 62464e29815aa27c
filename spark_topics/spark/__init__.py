# SPDX-License-Identifier: Apache-2.0
"""Spark's interfaces over any messaging system: nothing but adaptation."""
