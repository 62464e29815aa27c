# SPDX-License-Identifier: Apache-2.0
"""What a task does: ranges of topic partitions become RecordBatches."""
