# SPDX-License-Identifier: Apache-2.0
"""The face towards Spark: the only part of the package that imports pyspark."""
