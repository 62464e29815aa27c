# SPDX-License-Identifier: Apache-2.0
"""The protocol on blocking sockets: connections, lookups, positions, readers."""
