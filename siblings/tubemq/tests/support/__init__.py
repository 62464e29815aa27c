# SPDX-License-Identifier: Apache-2.0
"""Servers and clients of TubeMQ for tests."""
