"""Functions that users hand in: does one take what it will be given?"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any


def check_takes(function: Any, what: str, protocol: str, hint: str = "") -> Callable:
    """The function, if it can be called with the arguments of `protocol`, say "(robot, q, v) -> (nv,)", by position.

    Else a TypeError that says so, with the function's own signature. Functions that hide theirs are let through.
    """
    if not callable(function):
        raise TypeError(f"{what} must be a function {protocol}, got {function!r}.{hint}")
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return function
    given = protocol[1 : protocol.index(")")].split(", ")
    try:
        signature.bind(*given)
    except TypeError:
        name = getattr(function, "__name__", type(function).__name__)
        raise TypeError(f"{what} must be a function {protocol}, but {name} takes {signature}.{hint}") from None
    return function
