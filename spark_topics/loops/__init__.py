# SPDX-License-Identifier: Apache-2.0
"""What compiled loops over bytes share."""
