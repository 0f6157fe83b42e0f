"""Seeing a robot: `picture` (PNG, notebooks), `film` (GIF, MP4) and `view` (interactive, in the browser).

Every robot can be drawn: without meshes its links are rods and boxes. PNG pictures need no library; the rest comes with
`pip install 'jaxsoa[viz]'` and is imported when it is used.
"""

from jaxsoa.exports import exported
from jaxsoa.viz.meshes import (
    Mesh as Mesh,
)
from jaxsoa.viz.pictures import (
    film as film,
    picture as picture,
)
from jaxsoa.viz.shapes import (
    Shape as Shape,
    primitive_shapes as primitive_shapes,
)
from jaxsoa.viz.viewer import (
    Viewer as Viewer,
    view as view,
)
from jaxsoa.viz.visuals import (
    urdf_shapes as urdf_shapes,
)

__all__ = exported(globals())  # pyright: ignore[reportUnsupportedDunderAll]


def __dir__() -> list[str]:
    return __all__
