# SPDX-License-Identifier: Apache-2.0
"""What every client needs: sockets, TLS, trying again."""
