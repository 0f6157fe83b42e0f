"""The code in a document, run as a reader would: block after block, in one session."""

from __future__ import annotations

import re
from pathlib import Path


def run_python_blocks(path: Path) -> tuple[dict, int]:
    """Run every ```python block of a Markdown file; returns the names they leave behind and how many there were."""
    blocks = re.findall(r"```python\n(.*?)```", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    names: dict = {"__name__": path.name}
    for block in blocks:
        exec(compile(block, path.name, "exec"), names)
    return names, len(blocks)
