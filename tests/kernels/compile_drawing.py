"""Compiles the drawing kernel for a GPU that is not here and prints what matters of its machine code."""

from __future__ import annotations

import sys

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from lucid_yolo.kernels.augment import kernel
from lucid_yolo.kernels.augment.planned_batch import CUT, MAX_PLACEMENTS, MIX, PASTE

SIGNATURE = {
    "pixels": "*u8",
    **dict.fromkeys(("placements", "layers", "colors"), "*i64"),
    **dict.fromkeys(("maps", "shares"), "*fp32"),
    "tables": "*u8",
    "divisors": "*i32",
    "masks": "*u8",
    "images": "*fp32",
    "size": "i32",
    **dict.fromkeys(("LAYERS", "HAS_MASKS", "MAX_PLACEMENTS", "PASTE", "CUT", "MIX", "BLOCK"), "constexpr"),
}
CONSTANTS = {
    "LAYERS": 1,
    "HAS_MASKS": False,
    "MAX_PLACEMENTS": MAX_PLACEMENTS,
    "PASTE": PASTE,
    "CUT": CUT,
    "MIX": MIX,
    "BLOCK": kernel.BLOCK,
}

if __name__ == "__main__":
    source = ASTSource(kernel._draw_kernel, SIGNATURE, CONSTANTS)
    target = GPUTarget("cuda", int(sys.argv[1]), 32)
    ptx = triton.compile(source, target=target, options={"enable_fp_fusion": False}).asm["ptx"]
    print("draw", ptx.count("fma.rn"), "div" if "div.rn" in ptx else "no-div", len(ptx))
