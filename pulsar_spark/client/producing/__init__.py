# SPDX-License-Identifier: Apache-2.0
"""Producers: states, refusals by brokers, and resending."""
