# SPDX-License-Identifier: Apache-2.0
"""Why rows do not come, and whether rows are lost."""
