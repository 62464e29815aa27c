# SPDX-License-Identifier: Apache-2.0
"""What any messaging system needs to be Spark's tables and streams."""
