"""MuJoCo's compiler, called when it is needed: MJCF to a compiled model, and names for everything in it.

MuJoCo is imported inside functions: the package works without it, and readers of compiled models (`jaxsoa.io.convert`)
only touch attributes.
"""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from jaxsoa.io._names import unique
from jaxsoa.io._xml import read_xml
from jaxsoa.io.mjcf_limits import check_size
from jaxsoa.model.description import ModelError
from jaxsoa.model.validation import ModelWarning

#: What error messages call a model that was handed over compiled.
COMPILED_SOURCE = "<MjModel>"


def require_mujoco() -> Any:
    """The module `mujoco`, or an error that names the extra which brings it."""
    try:
        import mujoco
    except ImportError as error:
        raise ImportError('MJCF files are read by MuJoCo\'s own compiler: pip install "jaxsoa[mjcf]".') from error
    return mujoco


def compile_mjcf(source: Any, assets: Mapping[str, bytes] | None = None) -> tuple[Any, str]:
    """A compiled `mujoco.MjModel`, and what to call it in messages.

    `source` is a path, XML text (a string that starts with `<`) or a model that is compiled already. `assets` holds the
    files that XML text refers to, by name. Includes and meshes are opened by MuJoCo, which needs them for inertias.
    """
    mujoco = require_mujoco()
    if isinstance(source, mujoco.MjModel):
        if assets is not None:
            raise ModelError("assets belong to XML text; a compiled MjModel has read its files already.")
        return source, COMPILED_SOURCE
    root, name = read_xml(source)  # bounds, and says where malformed XML is malformed
    if root.tag != "mujoco":
        hint = " Read URDF files with load_urdf." if root.tag == "robot" else ""
        raise ModelError(f"{name}: the root element is <{root.tag}>, but an MJCF file starts with <mujoco>.{hint}")
    as_text = isinstance(source, str) and source.lstrip("\ufeff \t\r\n").startswith("<")
    check_size(root, name, assets, Path() if as_text else Path(name).parent)
    try:
        with _warnings_of(mujoco, name):
            if as_text:
                return mujoco.MjModel.from_xml_string(source, dict(assets or {})), name
            if assets is not None:
                raise ModelError(f"{name}: assets belong to XML text; a file finds its own.")
            return mujoco.MjModel.from_xml_path(os.fsdecode(source)), name
    except (ValueError, TypeError, mujoco.FatalError, mujoco.UnexpectedError) as error:
        if isinstance(error, ModelError):
            raise
        reason = " ".join(str(error).split())
        raise ModelError(f"{name}: MuJoCo cannot compile it ({reason}).") from error


@contextlib.contextmanager
def _warnings_of(mujoco: Any, name: str) -> Iterator[None]:
    """What MuJoCo warns of as `ModelWarning`; by itself it writes MUJOCO_LOG.TXT into the working directory."""
    if mujoco.get_mju_user_warning() is not None:  # the user listens already
        yield
        return
    told: list[str] = []
    mujoco.set_mju_user_warning(told.append)
    try:
        yield
    finally:
        mujoco.set_mju_user_warning(None)
        for text in dict.fromkeys(" ".join(text.split()) for text in told):
            warnings.warn(f"{name}: MuJoCo: {text}", ModelWarning, stacklevel=5)


def model_name(model: Any) -> str:
    """The name that stands at the beginning of MuJoCo's table of names."""
    return bytes(model.names).split(b"\0", 1)[0].decode()


def body_names(model: Any) -> tuple[str, ...]:
    """One name per body, `world` first; bodies without a name are called `body7`, by their number."""
    given = [model.body(k).name for k in range(model.nbody)]
    return _filled(given, [f"body{k}" for k in range(model.nbody)])


def joint_names(model: Any) -> tuple[str, ...]:
    """One name per joint; a joint without a name is called after its body: `body7_joint`, or `body7_joint2`."""
    bodies = body_names(model)
    given, fallback = [], []
    for k in range(model.njnt):
        body = int(model.jnt_bodyid[k])
        number = k - int(model.body_jntadr[body]) + 1
        given.append(model.joint(k).name)
        fallback.append(f"{bodies[body]}_joint{number if model.body_jntnum[body] > 1 else ''}")
    return _filled(given, fallback)


def _filled(given: list[str], fallback: list[str]) -> tuple[str, ...]:
    taken = {name for name in given if name}
    return tuple(name or unique(other, taken) for name, other in zip(given, fallback, strict=True))
