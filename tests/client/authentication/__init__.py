# SPDX-License-Identifier: Apache-2.0
"""Tests of `pulsar_spark.client.authentication`."""
