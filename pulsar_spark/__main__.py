# SPDX-License-Identifier: Apache-2.0
"""``python -m pulsar_spark``."""

import sys

from pulsar_spark.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
