"""What every test runs under: shape checks, fixed seeds, few threads, no network, GPU tests only where a GPU is.

``LUCID_YOLO_SHAPE_CHECKS=0`` leaves the package unchecked, which is faster to debug and needs no beartype.
"""

from __future__ import annotations

import os
import random
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MPLBACKEND", "Agg")

if os.environ.get("LUCID_YOLO_SHAPE_CHECKS", "1") != "0":
    from jaxtyping import install_import_hook

    # Before the first import of the package, so that every annotated function in it is checked; except device
    # functions, whose source Triton compiles as it stands.
    package = Path(__file__).parents[1] / "src/lucid_yolo"
    parts = [p.stem for p in package.iterdir() if p.suffix == ".py" or p.is_dir()]
    checked = [f"lucid_yolo.{part}" for part in sorted(parts) if part not in ("kernels", "__init__", "__pycache__")]
    checked += [f"lucid_yolo.kernels.{path.parent.name}.reference" for path in package.glob("kernels/*/reference.py")]
    install_import_hook(checked, "beartype.beartype")

import numpy as np
import pytest
import torch

GPU_TESTS = Path(__file__).parent / "gpu"
LOOPBACK_HOSTS = frozenset({"", "localhost", "0.0.0.0", "::", "::1"})


class NetworkUsedError(RuntimeError):
    """A test tried to leave this machine."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if GPU_TESTS in item.path.parents:
            item.add_marker(pytest.mark.gpu)


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu") and not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")


@pytest.fixture(scope="session", autouse=True)
def few_threads() -> None:
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))


@pytest.fixture(autouse=True)
def fixed_seeds() -> None:
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


@pytest.fixture(autouse=True)
def torch_switches() -> Iterator[None]:
    """Undo what a test changes in torch's global switches, so that no test depends on the one before it."""
    deterministic = torch.are_deterministic_algorithms_enabled()
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    fill = torch.utils.deterministic.fill_uninitialized_memory
    cudnn = (torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark)
    dtype = torch.get_default_dtype()
    yield
    torch.use_deterministic_algorithms(deterministic, warn_only=warn_only)
    torch.utils.deterministic.fill_uninitialized_memory = fill
    torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = cudnn
    torch.set_default_dtype(dtype)


@pytest.fixture(scope="session", autouse=True)
def no_network() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name in ("connect", "connect_ex"):
            patch.setattr(socket.socket, name, _loopback_only(getattr(socket.socket, name)))
        patch.setattr(socket, "getaddrinfo", _local_names_only(socket.getaddrinfo))
        yield


def _loopback_only(connect: Callable[..., Any]) -> Callable[..., Any]:
    def guarded(self: socket.socket, address: Any) -> Any:
        if self.family in {socket.AF_INET, socket.AF_INET6}:
            _refuse_unless_local(address[0])
        return connect(self, address)

    return guarded


def _local_names_only(getaddrinfo: Callable[..., Any]) -> Callable[..., Any]:
    def guarded(host: Any, *args: Any, **kwargs: Any) -> Any:
        _refuse_unless_local(host)
        return getaddrinfo(host, *args, **kwargs)

    return guarded


def _refuse_unless_local(host: bytes | str | None) -> None:
    name = host.decode() if isinstance(host, bytes) else (host or "")
    if name not in LOOPBACK_HOSTS and not name.startswith("127.") and name != socket.gethostname():
        raise NetworkUsedError(f"a test asked the network for {name!r}; tests run without one")
