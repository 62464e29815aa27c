# SPDX-License-Identifier: Apache-2.0
"""Schemas of topics: what the registry holds, read and compared. Pure."""
