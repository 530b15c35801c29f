"""The examples of functions: those of modules and classes run as doctests of their modules."""

from __future__ import annotations

import doctest
import types

import pytest

import attnscope as at

FUNCTIONS = [name for name in at.__all__ if isinstance(getattr(at, name), types.BuiltinFunctionType)]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_example_of_a_function(name: str) -> None:
    text = getattr(at, name).__doc__
    example = doctest.DocTestParser().get_doctest(text, {}, name, None, 0)
    assert example.examples, f"{name} has no example"
    said: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
    runner.run(example, out=said.append)
    assert not said, "".join(said)
