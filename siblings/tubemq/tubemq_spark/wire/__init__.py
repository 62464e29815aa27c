# SPDX-License-Identifier: Apache-2.0
"""Bytes of the TubeMQ protocol, and nothing that waits."""
