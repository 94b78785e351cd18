"""A driver of Triton for a GPU that is not here: kernels compile as they would there, and none can be launched."""

from __future__ import annotations

from triton.backends.compiler import GPUTarget
from triton.runtime.driver import driver


class PretendedGPU:
    def __init__(self, capability: int) -> None:
        self.target = GPUTarget("cuda", capability, 32)

    def get_current_target(self) -> GPUTarget:
        return self.target

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0

    def __getattr__(self, name: str) -> object:
        raise RuntimeError(f"a pretended GPU has no {name}")


def pretend(capability: int) -> None:
    driver.set_active(PretendedGPU(capability))
