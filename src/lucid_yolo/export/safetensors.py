"""safetensors: the averaged weights of both branches, for this package or for another one's own code."""

from __future__ import annotations

from pathlib import Path

from lucid_yolo.models.network import Network
from lucid_yolo.runtime.deployed_meta import DeployedMeta
from lucid_yolo.runtime.weights_file import write_weights


def write(network: Network, meta: DeployedMeta, path: Path) -> None:
    """Write weights and metadata, no graph; names and shapes are those of ``models/network.py``.

    Args:
        network: A trained network.
        meta: Goes into the file; half precision stores float16.
        path: File to write.
    """
    write_weights(network, meta, path)
