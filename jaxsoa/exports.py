"""What a package offers: what its `__init__` imports, without the modules that importing leaves in its namespace."""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType
from typing import Any


def exported(namespace: Mapping[str, Any], *modules: str) -> list[str]:
    """The names for `__all__` of a package (hand it `globals()`): no internals, and of modules only those named."""
    return sorted(
        name
        for name, value in namespace.items()
        if not name.startswith("_") and name != "exported" and (name in modules or not isinstance(value, ModuleType))
    )
