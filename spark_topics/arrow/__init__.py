# SPDX-License-Identifier: Apache-2.0
"""Arrow columns of any messaging system."""
