"""How long `import jaxsoa` takes beyond `import jax`, in fresh interpreters; wall time, and processor time for busy
machines.

python experiments/import_time.py [--repetitions 9]
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--repetitions", type=int, default=9)
options = parser.parse_args()

PROBE = """
import time
def now(): return time.perf_counter(), time.process_time()
before = now(); import jax, jax.numpy
middle = now(); import jaxsoa
after = now()
print(*(b - a for a, b in zip(before + middle, middle + after)))
"""

runs = []
for _ in range(options.repetitions + 1):  # the first one warms the disk cache and is dropped
    out = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, text=True, check=True).stdout
    runs.append([float(word) for word in out.split()])
names = ("import jax, wall", "import jax, processor", "import jaxsoa, wall", "import jaxsoa, processor")
for name, seconds in zip(names, zip(*runs[1:], strict=True), strict=True):
    print(f"{name:26s} {min(seconds):.2f} s at least, {statistics.median(seconds):.2f} s the median of {len(seconds)}")
