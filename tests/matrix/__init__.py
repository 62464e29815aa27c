# SPDX-License-Identifier: Apache-2.0
"""Releases of Pulsar, Spark and Python beside each other: ``make test-matrix``."""
