"""Robot files to `Multibody`."""

from __future__ import annotations

import os

from jaxsoa.io.urdf import read_urdf
from jaxsoa.model.assemble import assemble
from jaxsoa.model.multibody import Multibody


def load_urdf(source: str | os.PathLike[str], *, floating_base: bool = False, validate: str = "warn") -> Multibody:
    """Read a URDF file (a path, or the XML text itself).

    With `floating_base` the root link moves on a free joint named `floating_base`. `validate` says what unphysical
    inertias get: "warn" (default), "strict" (a `ModelError`) or "off". Broken models are a `ModelError` always.
    Meshes are never opened.
    """
    description = read_urdf(source, validate=validate)
    # The reader has reported what the policy asks for; assembling checks the structure again, silently.
    return assemble(description, floating_base=floating_base, validate="off")
