"""Compiles the kernels for GPUs that are not here and prints what matters of their machine code."""

from __future__ import annotations

import sys

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from lucid_yolo.kernels.assignment import kernel
from lucid_yolo.kernels.nms import kernel as nms_kernel

F, I64, B8 = "*fp32", "*i64", "*i1"
SOURCES = {
    "rank": (
        kernel._rank_kernel,
        {
            "prob": F,
            "boxes": F,
            "target": F,
            "surrogate": F,
            "labels": I64,
            "is_object": B8,
            "is_ignored": B8,
            "centers": F,
            "top_keys": I64,
            "best_keys": I64,
            "in_ignored": B8,
            **dict.fromkeys(("num_images", "num_targets", "num_points", "num_classes", "k_many", "k_one"), "i32"),
            "BLOCK": "constexpr",
            "SLOTS": "constexpr",
        },
        {"BLOCK": kernel.BLOCK, "SLOTS": kernel.SLOTS},
        4,
    ),
    "resolve": (
        kernel._resolve_kernel,
        {
            "is_object": B8,
            "top_keys": I64,
            "best_keys": I64,
            "out_index": I64,
            "out_weight": F,
            "out_positive": B8,
            "num_images": "i32",
            "num_targets": "i32",
            "num_points": "i32",
            "SLOTS": "constexpr",
        },
        {"SLOTS": kernel.SLOTS},
        1,
    ),
    "suppress": (
        nms_kernel._suppress_kernel,
        {
            "boxes": F,
            "labels": I64,
            "is_candidate": B8,
            "threshold": F,
            "survivors": I64,
            "num_candidates": "i32",
            "max_detections": "i32",
            "BLOCK": "constexpr",
        },
        {"BLOCK": 4096},
        16,
    ),
}

if __name__ == "__main__":
    capability = int(sys.argv[1])
    for name, (function, signature, constants, num_warps) in SOURCES.items():
        source = ASTSource(function, signature, constants)
        target = GPUTarget("cuda", capability, 32)
        options = {"enable_fp_fusion": False, "num_warps": num_warps}
        ptx = triton.compile(source, target=target, options=options).asm["ptx"]
        print(name, "fma" if "fma.rn" in ptx else "no-fma", "div" if "div.rn" in ptx else "no-div", len(ptx))
