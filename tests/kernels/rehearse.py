"""Rehearses the training pass of a network on a pretended GPU; prints what was compiled, then and at a second time.

``python tests/kernels/rehearse.py CAPABILITY SIZE_PX THREADS``; how long each took goes to standard error.
"""

from __future__ import annotations

import sys
import time
from unittest import mock

import torch
from pretended_gpu import pretend
from triton import knobs

from lucid_yolo.kernels import norm_act
from lucid_yolo.kernels.launch import rehearsal
from lucid_yolo.models.network import Network, use_norm_kernel
from lucid_yolo.runtime.checkpoint_file import ModelMeta
from lucid_yolo.structures import ClassMap


def train_pass(network: Network, size_px: int) -> None:
    images = torch.zeros(2, 3, size_px, size_px).to(memory_format=torch.channels_last)
    with torch.autocast("cpu", torch.bfloat16, cache_enabled=False):
        prediction = network(images)
    (prediction.box_ltrb_cell.float().sum() + prediction.class_logit.float().sum()).backward()


if __name__ == "__main__":
    capability, size_px, num_threads = map(int, sys.argv[1:])
    gpu = pretend(capability)
    compiled: list[str] = []
    knobs.runtime.jit_post_compile_hook = lambda **details: compiled.append(details["fn"].name)
    meta = ModelMeta("detect", "n", ClassMap(("a", "b"), (0, 1)), size_px)
    network = Network("n", meta.build_task().stems).to(memory_format=torch.channels_last).train()
    use_norm_kernel(network)
    with mock.patch.object(norm_act, "missing_for_kernel", return_value=""):
        for _ in range(2):
            compiled.clear()
            start = time.perf_counter()
            with rehearsal(num_threads):
                train_pass(network, size_px)
            print(f"{time.perf_counter() - start:.1f} s", file=sys.stderr)
            assert sorted(gpu.utils.loaded) == sorted(compiled)
            gpu.utils.loaded.clear()
            print(len(compiled), *sorted({name.strip("_").removesuffix("_kernel") for name in compiled}))
        try:
            train_pass(network, size_px)
        except RuntimeError as error:
            print("launched:", error)
