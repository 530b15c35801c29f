"""The command line, which is installed with the package."""

from __future__ import annotations

import sys

from attnscope import _core


def main() -> int:
    """Runs ``attnscope`` with the arguments of this process; its exit code."""
    return _core.command(["attnscope", *sys.argv[1:]])
