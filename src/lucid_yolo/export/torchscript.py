"""TorchScript, for programs with libtorch; torch itself calls it deprecated."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import torch

from lucid_yolo.export.deployed import DeployedNetwork
from lucid_yolo.models.network import Network
from lucid_yolo.runtime.deployed_meta import TORCHSCRIPT_ENTRY, DeployedMeta


def write(network: Network, meta: DeployedMeta, path: Path) -> None:
    """Write the deployed graph, traced at its picture size; any batch size. Equal scores keep eager's order.

    Args:
        network: A trained network.
        meta: Goes into the file and says how it is exported.
        path: File to write.
    """
    deployed = DeployedNetwork(network, meta.max_detections, is_half=meta.is_half, has_exact_ties=True).eval()
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the size is meant to be constant, and the format is deprecated
        images = torch.zeros(2, 3, *meta.size_px)
        traced = torch.jit.trace(deployed, (images,), check_trace=False)  # type: ignore[no-untyped-call]
        entries = {TORCHSCRIPT_ENTRY: json.dumps(meta.to_strings(), ensure_ascii=False).encode()}
        torch.jit.save(torch.jit.freeze(traced), str(path), _extra_files=entries)
