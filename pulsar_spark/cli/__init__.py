# SPDX-License-Identifier: Apache-2.0
"""The command line: ``python -m pulsar_spark``, or ``pulsar-spark``.

One module a command, each with ``add``, which says what it takes, and ``run``. What
they share: ``arguments``, what is given to all; ``output``, tables and JSON;
``spark_files``, a query's checkpoint as Spark writes it; ``backlogs``, what is unread.
"""
