# SPDX-License-Identifier: Apache-2.0
"""What to read, in what parts, and the loop of a reading task."""
