# SPDX-License-Identifier: Apache-2.0
"""Messages of the service, encoded and decoded. Without a network."""
