# SPDX-License-Identifier: Apache-2.0
"""Tests of what is given away: make check and make wheels run them."""
