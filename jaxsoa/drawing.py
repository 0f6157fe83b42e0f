"""A robot's motion as an SVG picture, without any plotting library: stick figures, fading into the past."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from xml.sax.saxutils import escape

import numpy as np

SIZE = 480
MARGIN = 48


def draw_motion(positions: np.ndarray, parents: Sequence[int], path: Path, *, title: str, most: int = 24) -> None:
    """Write side view (x-z) and top view (x-y) of link positions (times, n_links, 3) to an SVG file."""
    positions = np.asarray(positions, float)
    if not np.isfinite(positions).all():
        raise ValueError("Cannot draw a motion that holds NaN or infinity.")
    positions = positions[:: max(1, len(positions) // most)]
    low = np.minimum(positions.min(axis=(0, 1)), 0)
    high = np.maximum(positions.max(axis=(0, 1)), 0)
    middle, span = (low + high) / 2, max(float((high - low).max()), 1e-9)
    shapes = []
    for panel, (axes, name) in enumerate((((0, 2), "side view: x right, z up"), ((0, 1), "top view: x right, y up"))):
        left = panel * SIZE

        def to_page(point, axes=axes, left=left):
            x, y = ((point[list(axes)] - middle[list(axes)]) / span) * (SIZE - 2 * MARGIN)
            return left + SIZE / 2 + x, SIZE / 2 - y

        shapes.append(f'<text x="{left + MARGIN}" y="{SIZE - 14}" class="note">{name}</text>')
        for number, links in enumerate(positions):
            opacity = 0.12 + 0.88 * (number + 1) / len(positions)
            color = "#c0392b" if number == len(positions) - 1 else "#2c3e50"
            for link, parent in enumerate(parents):
                start = np.zeros(3) if parent < 0 else links[parent]
                (x1, y1), (x2, y2) = to_page(start), to_page(links[link])
                line = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
                shapes.append(f'<line {line} stroke="{color}" stroke-opacity="{opacity:.2f}" stroke-width="3"/>')
                if number == len(positions) - 1:
                    shapes.append(f'<circle cx="{x2:.1f}" cy="{y2:.1f}" r="4" fill="{color}"/>')
        x, y = to_page(np.zeros(3))
        shapes.append(f'<rect x="{x - 7:.1f}" y="{y - 7:.1f}" width="14" height="14" fill="#7f8c8d"/>')
    style = "<style>text{font-family:sans-serif;fill:#2c3e50}.note{font-size:13px}.title{font-size:17px}</style>"
    heading = f'<text x="{MARGIN}" y="30" class="title">{escape(title)} (first gray to last red)</text>'
    size = f'width="{2 * SIZE}" height="{SIZE}" viewBox="0 0 {2 * SIZE} {SIZE}"'
    page = f'<svg xmlns="http://www.w3.org/2000/svg" {size}><rect width="100%" height="100%" fill="white"/>'
    Path(path).write_text("\n".join([page, style, heading, *shapes, "</svg>", ""]), encoding="utf-8")
