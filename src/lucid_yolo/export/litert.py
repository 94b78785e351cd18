"""LiteRT (``.tflite``), for Android and small devices."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from zipfile import ZipFile

import torch

from lucid_yolo.export.deployed import DeployedNetwork
from lucid_yolo.models.network import Network
from lucid_yolo.runtime.deployed_meta import LITERT_ENTRY, DeployedMeta

# Without it a top-k becomes a sort that the LiteRT interpreter does not have.
DECOMPOSITIONS = "LITERT_TORCH_FULL_TFL_DECOMPS"


def write(network: Network, meta: DeployedMeta, path: Path) -> None:
    """Write the deployed graph for one picture of one size; the metadata is a zip entry behind it, as is the custom.

    Args:
        network: A trained network.
        meta: Goes into the file and says how it is exported.
        path: File to write.
    """
    with _native_operators():
        import litert_torch

        deployed = DeployedNetwork(network, meta.max_detections).eval()
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            litert_torch.convert(deployed, (torch.zeros(1, 3, *meta.size_px),)).export(str(path))
    with ZipFile(path, "a") as archive:
        archive.writestr(LITERT_ENTRY, json.dumps(meta.to_strings(), ensure_ascii=False))


@contextmanager
def _native_operators() -> Iterator[None]:
    before = os.environ.get(DECOMPOSITIONS)
    os.environ[DECOMPOSITIONS] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[DECOMPOSITIONS]
        else:
            os.environ[DECOMPOSITIONS] = before
