"""First calls from many threads at once, and processes started from one that has computed: all end, all are right.

What forked children do is not tested: they hang in JAX, which the package's docstring says.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

SECONDS = 400  # it takes about 15 of a processor; anything that waits forever takes longer than this

SCRIPT = """
import multiprocessing
import threading

import jax
import jax.numpy as jnp
import numpy as np

import jaxsoa as soa


def answers():
    robot = soa.models.random_tree(1, 3, ["revolute"])
    x = jnp.linspace(0.1, 0.3, robot.nv)
    return [
        lambda: jax.jit(soa.forward_dynamics)(robot, x, x, x),
        lambda: jax.jit(soa.inverse_dynamics)(robot, x, x, x),
        lambda: jax.jit(soa.mass_matrix)(robot, x),
        lambda: soa.forward_dynamics(robot, x, x, x),
    ]


def first(_):
    return np.asarray(answers()[0]())


if __name__ == "__main__":
    found = {}
    start = threading.Barrier(8)

    def work(number):
        start.wait()
        found[number] = np.asarray(answers()[number % 4]())

    threads = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, answer in enumerate(answers()):
        for n in (number, number + 4):
            np.testing.assert_allclose(found[n], np.asarray(answer()), rtol=1e-5, atol=1e-6)  # float32
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        np.testing.assert_allclose(pool.map(first, [0])[0], found[0], rtol=1e-5, atol=1e-6)
    print("all ended")
"""


@pytest.mark.slow
def test_eight_threads_at_once_and_a_spawned_process(tmp_path):
    script = tmp_path / "first_calls.py"
    script.write_text(SCRIPT)
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.strip() == "all ended"
