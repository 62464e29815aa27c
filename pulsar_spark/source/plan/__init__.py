# SPDX-License-Identifier: Apache-2.0
"""What a read is: topics, ranges, schemas, and the tasks that they become."""
