"""The README's Python runs as it stands, block after block, and what it says of the results is true."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

README = Path(__file__).parent.parent / "README.md"


@pytest.mark.slow
def test_every_python_block_runs(capsys):
    text = README.read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    assert len(blocks) >= 2
    names: dict = {}
    for block in blocks:
        exec(compile(block, "README.md", "exec"), names)
    np.testing.assert_allclose(names["tau_again"], names["tau"], rtol=1e-9, atol=1e-9)
    assert names["A"].shape == (6, 6)
    out = capsys.readouterr().out
    assert "2" in out.splitlines()[0] and out.splitlines()[-1] == "H ψ"
