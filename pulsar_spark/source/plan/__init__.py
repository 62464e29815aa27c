# SPDX-License-Identifier: Apache-2.0
"""A read on the driver: topics, ranges, schemas, and the tasks made of them."""
