# SPDX-License-Identifier: Apache-2.0
"""YDB topics as Spark tables and streams."""
