"""The formats there are: what each needs, and who writes it."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from pathlib import Path

from lucid_yolo.models.network import Network
from lucid_yolo.predict.backends import require
from lucid_yolo.runtime.deployed_meta import DeployedMeta


@dataclass(frozen=True)
class Format:
    """One target.

    Attributes:
        suffix: Ending of the file or folder.
        packages: What has to be importable to write and to check it.
        extra: The extra of this package that installs them.
        main_file: Inside a folder, the file that is opened.
        has_half: It can compute or store in float16.
        has_dynamic_size: One file can take pictures of several sizes.
        needs_square: What runs it here takes square pictures only.
    """

    suffix: str
    packages: tuple[str, ...] = ()
    extra: str = ""
    main_file: str = ""
    has_half: bool = True
    has_dynamic_size: bool = True
    needs_square: bool = False

    def opened(self, path: Path) -> Path:
        """Return the file that ``lucid_yolo.load`` takes."""
        return path / self.main_file if self.main_file else path


FORMATS: dict[str, Format] = {
    "onnx": Format(".onnx", ("onnx", "onnxscript", "onnxruntime"), "export"),
    "web": Format(
        ".web",
        ("onnx", "onnxscript", "onnxruntime"),
        "export",
        "model.onnx",
        has_half=False,
        has_dynamic_size=False,
        needs_square=True,
    ),
    "openvino": Format(".xml", ("openvino", "onnx", "onnxscript"), "export"),
    "torchscript": Format(".torchscript", has_dynamic_size=False),
    "executorch": Format(".pte", ("executorch.runtime",), "executorch", has_half=False, has_dynamic_size=False),
    "litert": Format(
        ".tflite", ("litert_torch", "ai_edge_litert.interpreter"), "litert", has_half=False, has_dynamic_size=False
    ),
    "safetensors": Format(".safetensors", has_dynamic_size=False, needs_square=True),
}


def find_format(name: str, *, is_half: bool = False, has_dynamic_size: bool = False) -> Format:
    """Return a format that can be written here.

    Args:
        name: As users type it.
        is_half: Half precision is wanted.
        has_dynamic_size: A dynamic picture size is wanted.

    Raises:
        ValueError: Unknown, a package is missing, or it cannot do what is wanted.
    """
    found = FORMATS.get(name)
    if found is None:
        raise ValueError(f"format: expected one of {', '.join(FORMATS)}, found {name!r}")
    for package in found.packages:
        require(package, found.extra, f"format {name}")
    if is_half and not found.has_half:
        raise ValueError(f"half: format {name} has no float16 here; leave --half out")
    if has_dynamic_size and not found.has_dynamic_size:
        raise ValueError(f"dynamic_size: a file of format {name} has one size; leave --dynamic_size out")
    return found


def write(name: str, network: Network, meta: DeployedMeta, path: Path) -> None:
    """Write a file or folder of a format.

    Args:
        name: A key of :data:`FORMATS`.
        network: A trained network; it is not changed.
        meta: How it is exported; goes into the file.
        path: Where; missing folders are made.

    Raises:
        ValueError: The picture size is not square where the format needs that.
    """
    height, width = meta.size_px
    if FORMATS[name].needs_square and height != width:
        raise ValueError(f"image_size: format {name} needs a square, found {height} x {width}")
    path.parent.mkdir(parents=True, exist_ok=True)
    importlib.import_module(f"lucid_yolo.export.{name}").write(network, meta, path)
