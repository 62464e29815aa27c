# SPDX-License-Identifier: Apache-2.0
"""Options as Spark hands them over: declared once, read into typed values."""
