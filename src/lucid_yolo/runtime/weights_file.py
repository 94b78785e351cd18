"""Weights without training state: safetensors with metadata."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from lucid_yolo.models.network import Network
from lucid_yolo.runtime.checkpoint_file import ModelMeta
from lucid_yolo.runtime.deployed_meta import DeployedMeta

SUFFIX = ".safetensors"


def write_weights(network: Network, meta: DeployedMeta, path: Path) -> None:
    """Write a network's parameters and running statistics.

    Args:
        network: The network, not fused.
        meta: Goes into the file; half precision stores float16.
        path: File to write.
    """
    dtype = torch.float16 if meta.is_half else torch.float32
    tensors = {name: value.detach().cpu().to(dtype).contiguous() for name, value in network.state_dict().items()}
    save_file(tensors, path, metadata=meta.to_strings())


def read_weights(path: str | Path) -> tuple[Network, ModelMeta]:
    """Return the network, in evaluation mode and float32, and what it is.

    Raises:
        FileNotFoundError: No such file.
        ValueError: It cannot be read, or was not written by :func:`write_weights`.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"weights: found no file {path}")
    try:
        with safe_open(path, framework="pt") as file:
            meta = DeployedMeta.from_strings(file.metadata() or {}, path).model
            state = {name: file.get_tensor(name).float() for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise ValueError(f"weights {path} cannot be read ({error})") from error
    network = Network(meta.variant, meta.build_task().stems)
    try:
        network.load_state_dict(state)
    except RuntimeError as error:
        raise ValueError(f"weights {path}: expected those of a network {meta.variant}, found others") from error
    return network.eval(), meta
