# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import inspect
import pickle

import pytest

from ydb_spark import errors

CLASSES = [
    cls
    for _, cls in inspect.getmembers(errors, inspect.isclass)
    if issubclass(cls, errors.YdbError)
]


def test_conditions():
    """Each class has one of its own, and the tree in the docstring names them all."""
    assert len({cls.condition for cls in CLASSES}) == len(CLASSES)
    assert errors.__doc__ is not None
    for cls in CLASSES:
        assert cls.__name__ in errors.__doc__
        assert cls is errors.YdbError or f"[{cls.condition}]" in errors.__doc__
        assert cls.__doc__ is not None
        assert cls is errors.YdbError or "Cure: " in cls.__doc__


@pytest.mark.parametrize("cls", [errors.ServerError, errors.TakenOverError])
def test_they_travel(cls: type[errors.ServerError]):
    """From executors to the driver, with their facts."""
    error = cls("message", status="OVERLOADED", is_slow=True, retriable=True)
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301
    assert type(copy) is cls
    assert vars(copy) == vars(error)
