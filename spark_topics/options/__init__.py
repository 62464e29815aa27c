# SPDX-License-Identifier: Apache-2.0
"""Options: declared on fields, parsed from Spark's map into typed values."""
