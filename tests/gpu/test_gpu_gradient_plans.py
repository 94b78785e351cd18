"""A first backward pass whose plans were built ahead takes less time and gives the same bytes."""

from __future__ import annotations

import json
import subprocess
import sys

SCRIPT = """
import json, sys, time, zlib
import torch
from lucid_yolo.models.network import Network
from lucid_yolo.runtime.determinism import make_deterministic
from lucid_yolo.runtime.gradient_plans import GradientPlans
from lucid_yolo.tasks import DetectTask

make_deterministic()
torch.manual_seed(0)
network = Network("n", DetectTask(5).stems).train().cuda().to(memory_format=torch.channels_last)
if sys.argv[1] == "ahead":
    GradientPlans(network, 8, 320, torch.bfloat16).wait()
images = torch.rand(8, 3, 320, 320, device="cuda").to(memory_format=torch.channels_last)
with torch.autocast("cuda", torch.bfloat16, cache_enabled=False):
    prediction = network(images)
loss = prediction.box_ltrb_cell.float().square().sum() + prediction.class_logit.float().square().sum()
torch.cuda.synchronize()
start = time.perf_counter()
loss.backward()
torch.cuda.synchronize()
seconds = time.perf_counter() - start
grads = torch.cat([parameter.grad.flatten() for parameter in network.parameters()])
print(json.dumps({"seconds": seconds, "bytes": zlib.crc32(grads.cpu().numpy().tobytes())}))
"""


def first_backward(when: str) -> dict[str, float]:
    """Return seconds and bytes of the first backward pass of a process."""
    command = [sys.executable, "-c", SCRIPT, when]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


def test_a_first_backward_pass_finds_its_plans() -> None:
    usual, ahead = first_backward("when needed"), first_backward("ahead")
    assert ahead["bytes"] == usual["bytes"]
    assert ahead["seconds"] < usual["seconds"] / 4
