"""What the first call of each convolution's gradient costs, and what one thread leaves for another.

``python benchmarks/first_calls.py [THREADS]`` calls every distinct one of scale n (batch 16, 640 px, bf16) once in
that many threads, then times the first two passes of the network, which run in the main thread (forward) and in
autograd's (backward); ``autograd`` in place of a number lets autograd's thread make the calls.
"""

from __future__ import annotations

import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import torch

from lucid_yolo.models.network import Network
from lucid_yolo.runtime.determinism import make_deterministic
from lucid_yolo.runtime.gradient_plans import GradientCall, GradientPlans, gradient_calls
from lucid_yolo.tasks import DetectTask

BATCH, SIZE_PX, NUM_CLASSES, DTYPE = 16, 640, 6, torch.bfloat16
SLOWEST = 8
DEVICE = torch.device("cuda")


def seconds_since(start: float) -> float:
    torch.cuda.synchronize()
    return round(time.perf_counter() - start, 3)


def timed_call(call: GradientCall) -> tuple[float, str]:
    start = time.perf_counter()
    call.run(DTYPE, DEVICE)
    kind = "depthwise" if call.groups > 1 else "dense"
    return round(time.perf_counter() - start, 3), f"{kind} {call.input_shape} {call.weight_shape}"


def network_passes(network: Network) -> list[dict[str, float]]:
    """Return seconds of two forward and backward passes."""
    images = torch.rand(BATCH, 3, SIZE_PX, SIZE_PX, device=DEVICE).to(memory_format=torch.channels_last)
    passes = []
    for _ in range(2):
        start = time.perf_counter()
        with torch.autocast("cuda", DTYPE, cache_enabled=False):
            prediction = network(images)
        loss = prediction.box_ltrb_cell.float().sum() + prediction.class_logit.float().sum()
        forward, start = seconds_since(start), time.perf_counter()
        loss.backward()  # type: ignore[no-untyped-call]
        passes.append({"forward": forward, "backward": seconds_since(start)})
    return passes


def main() -> int:
    threads = sys.argv[1] if len(sys.argv) > 1 else "1"
    make_deterministic()
    network = Network("n", DetectTask(NUM_CLASSES).stems).train()
    calls = gradient_calls(network, BATCH, SIZE_PX)
    network.to(DEVICE, memory_format=torch.channels_last)  # type: ignore[call-overload]
    slowest: list[tuple[float, str]] = []
    start = time.perf_counter()
    if threads == "autograd":
        GradientPlans(network, BATCH, SIZE_PX, DTYPE).wait()
    elif int(threads) > 0:
        with ThreadPoolExecutor(int(threads)) as pool:
            slowest = sorted(pool.map(timed_call, calls), reverse=True)[:SLOWEST]
    report = {"distinct": len(calls), "threads": threads, "calls": seconds_since(start), "slowest": slowest}
    print(json.dumps(report | {"passes": network_passes(network)}, indent=1), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
