# SPDX-License-Identifier: Apache-2.0
"""A clock that tests move."""

from tests.support.fixtures import clock as clock
