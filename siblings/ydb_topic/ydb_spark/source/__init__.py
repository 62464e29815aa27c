# SPDX-License-Identifier: Apache-2.0
"""What to read, how far, in what parts."""
