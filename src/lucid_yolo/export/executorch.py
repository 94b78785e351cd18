"""ExecuTorch, for phones and small devices, through XNNPACK."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import torch

from lucid_yolo.export.deployed import DeployedNetwork
from lucid_yolo.models.network import Network
from lucid_yolo.runtime.deployed_meta import EXECUTORCH_METHOD, DeployedMeta


def write(network: Network, meta: DeployedMeta, path: Path) -> None:
    """Write the deployed graph for one picture of one size; the metadata is a second method that returns text.

    ExecuTorch's top-k promises no order of equals.

    Args:
        network: A trained network.
        meta: Goes into the file and says how it is exported.
        path: File to write.
    """
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge_transform_and_lower

    deployed = DeployedNetwork(network, meta.max_detections).eval()
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.export.export(deployed, (torch.zeros(1, 3, *meta.size_px),), strict=False)
        entries = {EXECUTORCH_METHOD: json.dumps(meta.to_strings(), ensure_ascii=False)}
        lowered = to_edge_transform_and_lower(program, partitioner=[XnnpackPartitioner()], constant_methods=entries)
        path.write_bytes(lowered.to_executorch().buffer)
