# SPDX-License-Identifier: Apache-2.0
"""The write path: from rows to brokers."""
