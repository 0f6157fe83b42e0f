"""Libraries of the extra `viz`, imported when they are needed, with an error that says how to get them."""

from __future__ import annotations

import importlib
from types import ModuleType


def require(module: str, purpose: str) -> ModuleType:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        name = module.split(".")[0]
        package = {"PIL": "pillow"}.get(name, name)
        message = f"{purpose} needs {package}, which is not installed: pip install 'jaxsoa[viz]'."
        raise ImportError(message, name=name) from error
