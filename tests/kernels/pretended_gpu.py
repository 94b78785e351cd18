"""A driver of Triton for a GPU that is not here: kernels compile and load as they would there; a launch is an error."""

from __future__ import annotations

from typing import Any

from triton.backends.compiler import GPUTarget
from triton.runtime.driver import driver


class Handles:
    """Stands for the driver's functions on compiled code.

    Attributes:
        loaded: Names of the kernels that were loaded.
    """

    def __init__(self) -> None:
        self.loaded: list[str] = []

    def get_device_properties(self, device: int) -> dict[str, int]:
        return {"max_shared_mem": 227 * 1024}

    def load_binary(self, name: str, binary: bytes, shared: int, device: int) -> tuple[int, int, int, int, int]:
        assert len(binary) > 1000
        self.loaded.append(name)
        return 1, 1, 32, 0, 1024


class PretendedGPU:
    def __init__(self, capability: int) -> None:
        self.target = GPUTarget("cuda", capability, 32)
        self.utils = Handles()

    def get_current_target(self) -> GPUTarget:
        return self.target

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0

    def launcher_cls(self, source: Any, metadata: Any) -> Any:
        def launch(*args: Any) -> None:
            raise RuntimeError("a pretended GPU runs nothing")

        return launch


def pretend(capability: int) -> PretendedGPU:
    gpu = PretendedGPU(capability)
    driver.set_active(gpu)
    return gpu
