# SPDX-License-Identifier: Apache-2.0
"""Micro-batches: limits, offsets in the checkpoint, new topic partitions."""
