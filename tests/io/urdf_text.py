"""Small URDF files, put together from strings."""

from __future__ import annotations


def inertial(mass="1", diagonal=("1", "1", "1"), origin="", off_diagonal="0") -> str:
    xx, yy, zz = diagonal
    tensor = f'<inertia ixx="{xx}" iyy="{yy}" izz="{zz}" ixy="{off_diagonal}" ixz="0" iyz="0"/>'
    return f'<inertial>{origin}<mass value="{mass}"/>{tensor}</inertial>'


def link(name: str, content: str = "") -> str:
    return f'<link name="{name}">{content or inertial()}</link>'


def joint(name: str, parent: str, child: str, kind: str = "continuous", content: str = "") -> str:
    return f'<joint name="{name}" type="{kind}"><parent link="{parent}"/><child link="{child}"/>{content}</joint>'


def robot(*elements: str) -> str:
    return f'<robot name="r">{"".join(elements)}</robot>'


def one_joint(kind: str = "continuous", content: str = "", child: str = "") -> str:
    return robot(link("a"), link("b", child), joint("j", "a", "b", kind, content))


MASSLESS = inertial("0", ("0", "0", "0"))
