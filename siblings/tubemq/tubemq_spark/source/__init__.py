# SPDX-License-Identifier: Apache-2.0
"""What to read, how far, and in what parts."""
