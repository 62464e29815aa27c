# SPDX-License-Identifier: Apache-2.0
"""Producers: their states, what brokers refuse, and what is sent again."""
