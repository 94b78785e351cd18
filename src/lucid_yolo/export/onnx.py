"""ONNX: any batch size, fixed or any multiple-of-32 picture size."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from lucid_yolo.export.deployed import DeployedNetwork
from lucid_yolo.models.network import Network
from lucid_yolo.models.scales import STRIDES
from lucid_yolo.runtime.deployed_meta import INPUT_NAME, OUTPUT_NAME, DeployedMeta

if TYPE_CHECKING:
    import onnx

OPSET = 18


def write(network: Network, meta: DeployedMeta, path: Path) -> None:
    """Write the deployed graph.

    ONNX defines its top-k to put the lower index first among equals, so the ranking is eager's, ties included.

    Args:
        network: A trained network.
        meta: Goes into the file and says how it is exported.
        path: File to write.
    """
    import onnx

    onnx.save(build(network, meta), str(path))


def build(network: Network, meta: DeployedMeta) -> onnx.ModelProto:
    """Return the checked model; see :func:`write`."""
    import onnx

    deployed = DeployedNetwork(network, meta.max_detections, is_half=meta.is_half).eval()
    images = torch.zeros(2, 3, *meta.size_px)
    axes = {0: torch.export.Dim("batch")}
    if meta.has_dynamic_size:
        axes |= {axis: STRIDES[-1] * torch.export.Dim(name) for axis, name in ((2, "rows"), (3, "columns"))}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporter about itself
        program = torch.onnx.export(
            deployed,
            (images,),
            dynamo=True,
            opset_version=OPSET,
            dynamic_shapes=(axes,),
            input_names=[INPUT_NAME],
            output_names=[OUTPUT_NAME],
            verbose=False,
        )
    assert program is not None
    model: onnx.ModelProto = program.model_proto
    _drop_notes(model.graph)
    onnx.helper.set_model_props(model, meta.to_strings())
    model.producer_name = "lucid-yolo"
    onnx.checker.check_model(model, full_check=True)
    return model


def _drop_notes(graph: onnx.GraphProto) -> None:
    """Remove the exporter's notes on every node, source lines and paths of this machine among them."""
    for entry in (*graph.node, *graph.value_info, *graph.input, *graph.output, *graph.initializer):
        entry.ClearField("metadata_props")
        entry.ClearField("doc_string")
    graph.ClearField("metadata_props")
