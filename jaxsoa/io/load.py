"""Robot files to `Multibody`."""

from __future__ import annotations

import os
import warnings

from jaxsoa.io.urdf import read_urdf
from jaxsoa.model.assemble import assemble
from jaxsoa.model.description import ModelError, abbreviated
from jaxsoa.model.multibody import Multibody
from jaxsoa.model.validation import ModelWarning


def load_urdf(source: str | os.PathLike[str], *, floating_base: bool = False, validate: str = "warn") -> Multibody:
    """Read a URDF file (a path, or the XML text itself).

    With `floating_base` the root link moves on a free joint named `floating_base`. `validate` says what unphysical
    inertias get: "warn" (default), "strict" (a `ModelError`) or "off". Broken models are a `ModelError` always.
    Meshes are never opened.

    Mimic joints are joints of their own in every open-chain function; `closed_chain.mimic_couplings` gives the
    constraints that tie them. Such a file loads with a warning that names them, and is an error under "strict".
    """
    description = read_urdf(source, validate=validate)
    mimics = [joint.name for joint in description.joints if joint.mimic is not None and joint.kind != "fixed"]
    if mimics:
        message = (
            f"{description.source}: joints {abbreviated(mimics)} mimic others. Open-chain dynamics leaves them free; "
            "tie them with the constraints of jaxsoa.closed_chain.mimic_couplings(robot)."
        )
        if validate == "strict":
            raise ModelError(message)
        warnings.warn(message, ModelWarning, stacklevel=2)
    # The reader has reported what the policy asks for; assembling checks the structure again, silently.
    return assemble(description, floating_base=floating_base, validate="off")
