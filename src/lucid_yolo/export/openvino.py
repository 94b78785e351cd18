"""OpenVINO: an ``.xml`` graph with its weights in the ``.bin`` beside it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from lucid_yolo.export import onnx
from lucid_yolo.models.network import Network
from lucid_yolo.runtime.deployed_meta import RT_INFO_SECTION, DeployedMeta


def write(network: Network, meta: DeployedMeta, path: Path) -> None:
    """Write the deployed graph by way of ONNX; half precision stores the weights as float16.

    OpenVINO's top-k promises no order of equals unless it is marked stable, so it is.

    Args:
        network: A trained network.
        meta: Goes into the file and says how it is exported.
        path: The ``.xml`` to write.
    """
    import openvino

    with TemporaryDirectory() as folder:
        source = Path(folder) / "model.onnx"
        onnx.write(network, replace(meta, is_half=False), source)
        model = openvino.convert_model(source)
    for operation in model.get_ops():
        if operation.get_type_name() == "TopK":
            operation.set_attribute("stable", True)
    for name, value in meta.to_strings().items():
        model.set_rt_info(value, [RT_INFO_SECTION, name])
    openvino.save_model(model, path, compress_to_fp16=meta.is_half)
