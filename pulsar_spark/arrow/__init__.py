# SPDX-License-Identifier: Apache-2.0
"""Messages <-> Arrow columns: no socket, no Spark."""
