# SPDX-License-Identifier: Apache-2.0
"""The command line, run in the process of a test."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pulsar_spark.cli.main import main

#: Runs a command; its exit code, and all that it printed.
Run = Callable[..., tuple[int, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command; also one whose arguments end the process."""

    def run_command(*arguments: object) -> tuple[int, str]:
        capsys.readouterr()
        try:
            code = main([str(one) for one in arguments])
        except SystemExit as end:
            code = int(end.code or 0)
        captured = capsys.readouterr()
        return code, captured.out + captured.err

    return run_command
