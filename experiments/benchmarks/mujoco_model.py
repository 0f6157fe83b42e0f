"""The robot as a MuJoCo model without contacts, limits or passive forces, for MJX and Brax."""

from __future__ import annotations

import mujoco
from defusedxml import ElementTree
from robots import with_world


def mujoco_model(urdf: str, floating: bool) -> tuple[mujoco.MjModel, list[str]]:
    """(model, names of its joints without the base's)."""
    text = with_world(urdf, "floating" if floating else "fixed")
    root = ElementTree.fromstring(text)
    extension = root.makeelement("mujoco", {})
    options = dict(fusestatic="true", balanceinertia="false", boundmass="0", boundinertia="0", inertiafromgeom="false")
    extension.append(extension.makeelement("compiler", options))
    root.append(extension)
    spec = mujoco.MjSpec.from_string(ElementTree.tostring(root, encoding="unicode"))
    model = spec.compile()
    model.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_CONSTRAINT | mujoco.mjtDisableBit.mjDSBL_CONTACT
    model.jnt_limited[:] = 0
    names = [model.joint(i).name for i in range(model.njnt)]
    return model, names[1 if floating else 0 :]
