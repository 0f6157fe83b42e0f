"""Machine code for functions of one state, of their batches, and the door through which they get it."""

from jaxsoa.exports import exported
from jaxsoa.kernels._door import clear as clear, door as door
from jaxsoa.kernels._report import report as report
from jaxsoa.kernels.rules import by_jax as by_jax, is_zero as is_zero, ruled as ruled

__all__ = exported(globals())  # pyright: ignore[reportUnsupportedDunderAll]


def __dir__() -> list[str]:
    return __all__
