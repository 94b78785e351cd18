# %% [markdown]
# # Speed and proof
#
# Runs training batches through the plain step and the accelerated step and compares every byte after each. With a GPU
# the accelerated step is one recorded CUDA graph; on a CPU both are eager, and the certificate says so. Then it spoils
# one bit on purpose and watches it being found.

# %%
import json
import os
import subprocess
from pathlib import Path

from lucid_yolo.data.synthetic import draw_shapes

is_fast = os.environ.get("LUCID_YOLO_NOTEBOOK_BUDGET") == "fast"
work = Path("notebook_runs")
data_root = work / "proof_shapes"
draw_shapes(
    data_root, num_train=16 if is_fast else 128, num_val=4, image_size_px=64 if is_fast else 320, object_px=(12, 40)
)
size = ["--model.image_size", "64" if is_fast else "320", "--data.batch_size", "4" if is_fast else "16"]


def run(*words: str) -> subprocess.CompletedProcess[str]:
    """Run a command and show what it says."""
    done = subprocess.run(words, capture_output=True, text=True)
    print(done.stdout, done.stderr[-2000:])
    return done


# %% [markdown]
# ## The proof

# %%
prove = [
    "lucid-bench",
    "prove",
    "--config",
    "detect",
    "--data.data_root",
    str(data_root),
    "--data.num_workers",
    "0",
    *size,
]
done = run(*prove, "--steps", "2" if is_fast else "50", "--json", str(work / "proof.json"))
assert done.returncode == 0

# %%
certificate = json.loads((work / "proof.json").read_text())
sorted(certificate)

# %% [markdown]
# ## A fault
#
# One bit of one module's output is flipped in every accelerated step. The exit code is 1, and the place is named.

# %%
done = run(*prove, "--steps", "2" if is_fast else "10", "--fault", "neck.out3.split.act")
done.returncode
