"""Compiles the normalisation kernels for a GPU that is not here and prints the size of their machine code."""

from __future__ import annotations

import sys

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from lucid_yolo.kernels.norm_act import kernel

X, F = "*bf16", "*fp32"
COUNTS = {
    "num_rows": "i32",
    "grad_stride": "i32",
    "channels": "i32",
    "num_parts": "i32",
    "momentum": "fp32",
    "eps": "fp32",
}
TYPES = {"x": X, "grad": X, "y": X, "grad_x": X, **COUNTS}
CONSTANTS = {"HAS_ACT": True, "BLOCK_R": 64, "BLOCK_C": 64, "BLOCK_P": 32}

if __name__ == "__main__":
    for name, is_fixed in (
        ("moments", False),
        ("merge", False),
        ("apply", False),
        ("apply", True),
        ("reduce", False),
        ("sum", False),
        ("grad", False),
    ):
        function = getattr(kernel, f"_{name}_kernel")
        names = function.arg_names
        constants = CONSTANTS | {"IS_FIXED": is_fixed}
        signature = {n: "constexpr" if n in constants else TYPES.get(n, F) for n in names}
        source = ASTSource(function, signature, {n: constants[n] for n in names if n in constants})
        ptx = triton.compile(source, target=GPUTarget("cuda", int(sys.argv[1]), 32)).asm["ptx"]
        print(name, "atomic" if "atom." in ptx or "red.global" in ptx else "no-atomic", len(ptx))
