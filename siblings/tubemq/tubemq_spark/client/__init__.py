# SPDX-License-Identifier: Apache-2.0
"""The TubeMQ protocol on blocking sockets."""
