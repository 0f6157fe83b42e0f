"""Names for what a file leaves without one."""

from __future__ import annotations


def unique(name: str, taken: set[str]) -> str:
    """`name`, with underscores after it until nobody has it; it is taken from then on."""
    while name in taken:
        name += "_"
    taken.add(name)
    return name
