"""Run under torchrun on two GPUs: recorded steps equal eager steps, and both ranks hold the same state."""

from __future__ import annotations

import os
import sys

import torch
import torch.distributed as dist

from lucid_yolo.bench.step import synthetic_batch
from lucid_yolo.engine.strategy import ProcessGroupCollective
from lucid_yolo.models.network import Network
from lucid_yolo.optim.schedule import RunLength, ScheduleConfig, build_schedule
from lucid_yolo.runtime.determinism import make_deterministic
from lucid_yolo.runtime.state import TrainState
from lucid_yolo.runtime.step import StepConfig, TrainStep
from lucid_yolo.tasks import DetectTask

SHARED = ("params", "momentum", "ema", "committed_buffers")


def make_step(accumulate: int, device: torch.device) -> TrainStep:
    torch.manual_seed(0)
    task = DetectTask(5, assignment="kernel")
    network = Network("n", task.stems).train().to(device)
    schedule = build_schedule(ScheduleConfig(), RunLength(25, 2, accumulate))
    config = StepConfig((128, 128), "bf16", accumulate)
    return TrainStep(TrainState(network), task, schedule, config, ProcessGroupCollective())


def main() -> int:
    make_deterministic()
    rank = int(os.environ["LOCAL_RANK"])
    device = torch.device("cuda", rank)
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    failures = []
    for accumulate in (1, 2):
        eager, recorded = make_step(accumulate, device), make_step(accumulate, device)
        recorded.record()
        for seed in range(12):
            batch = synthetic_batch(4, 128, 256 if seed == 5 else 64, 5, 100 * rank + seed).to(device)
            eager.run(batch)
            recorded.run(batch)
        for name, tensor in eager.state.tensors().items():
            if tensor.cpu().numpy().tobytes() != recorded.state.tensors()[name].cpu().numpy().tobytes():
                failures.append(f"accumulate {accumulate}: {name} differs between eager and recorded")
        for name in SHARED:
            mine = recorded.state.tensors()[name]
            first = mine.clone()
            dist.broadcast(first, 0)
            if not torch.equal(first, mine):
                failures.append(f"accumulate {accumulate}: {name} differs between the ranks")
        if recorded.counts.replayed != 12 or recorded.counts.recorded != 2:
            failures.append(f"accumulate {accumulate}: {recorded.counts}")
        recorded.release()
    dist.barrier()
    dist.destroy_process_group()
    print(f"rank {rank}: {failures or 'equal'}", flush=True)
    return len(failures)


if __name__ == "__main__":
    sys.exit(main())
