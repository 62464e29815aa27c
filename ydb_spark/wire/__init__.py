# SPDX-License-Identifier: Apache-2.0
"""The service's messages, and what they mean. Without a network."""
