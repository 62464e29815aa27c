# SPDX-License-Identifier: Apache-2.0
"""Messages become columns, and columns messages."""
