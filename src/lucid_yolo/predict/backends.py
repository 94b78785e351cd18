"""Opens what can find objects: a checkpoint, or a file that ``lucid-export`` wrote, by the suffix."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import UInt8
from torch import Tensor

from lucid_yolo.models.head import BRANCHES
from lucid_yolo.runtime.deployed_meta import INPUT_NAME, DeployedMeta
from lucid_yolo.runtime.detector import Detector, ImageDetector, choose_device
from lucid_yolo.runtime.precision import PrecisionName
from lucid_yolo.structures import Detections

BRANCH = "one_to_one"


class Program(NamedTuple):
    """An opened file.

    Attributes:
        entries: Its metadata.
        run: ``[B, 3, H, W]`` float32 to ``[B, D, 6]`` float32.
        has_fixed_batch: It takes one picture at a time.
    """

    entries: dict[str, str]
    run: Callable[[np.ndarray], np.ndarray]
    has_fixed_batch: bool = False


@dataclass(frozen=True)
class Backend:
    """How files of one suffix are run.

    Attributes:
        open: Opens a file on a device.
        package: What has to be importable.
        extra: The extra of this package that installs it; empty if none is needed.
        runs_on_gpu: It can run on a CUDA device.
    """

    open: Callable[[Path, torch.device], Program]
    package: str
    extra: str
    runs_on_gpu: bool = False


def require(package: str, extra: str, purpose: str) -> Any:
    """Import an optional package.

    Args:
        package: Module to import.
        extra: The extra that installs it.
        purpose: What it is needed for.

    Raises:
        ValueError: It is not installed; the message names the extra.
    """
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise ValueError(
            f"{purpose} needs {package}: install this package's extra `{extra}`, pip install -e '.[{extra}]' ({error})"
        ) from error


class ExportedDetector:
    """Runs an exported file: the deployed branch, on the CPU unless the runtime has a GPU.

    Args:
        program: The opened file.
        path: Where it lies, for messages.
        device: Where it runs.
    """

    branches = (BRANCH,)

    def __init__(self, program: Program, path: Path, device: torch.device) -> None:
        self.deployed = DeployedMeta.from_strings(program.entries, path)
        self.meta = self.deployed.model
        self.precision = self.deployed.precision
        self.device = device
        self.path = path
        self._program = program

    def detect(self, images: UInt8[Tensor, "B 3 H W"]) -> dict[str, Detections]:
        """Return the ranked detections; which anchor point each came from is not in the file, so that is -1.

        Args:
            images: RGB letterboxed to the input size of the file.

        Raises:
            ValueError: The file was exported for another size.
        """
        found, expected = tuple(images.shape[2:]), self.deployed.size_px
        if found != expected and not self.deployed.has_dynamic_size:
            raise ValueError(
                f"{self.path}: takes pictures of {expected[0]} x {expected[1]} (height x width), found {found[0]} x "
                f"{found[1]}; export a square or a dynamic size"
            )
        pixels = images.cpu().float().mul(1 / 255).numpy()
        pieces = [pixels[i : i + 1] for i in range(len(pixels))] if self._program.has_fixed_batch else [pixels]
        rows = torch.from_numpy(np.concatenate([np.array(self._program.run(piece), np.float32) for piece in pieces]))
        label = rows[..., 5].round().long()
        return {BRANCH: Detections(rows[..., :4], rows[..., 4], label, torch.full_like(label, -1))}


def open_detector(
    path: str | Path,
    device: str = "auto",
    precision: PrecisionName = "auto",
    branches: Sequence[str] = BRANCHES,
    is_fused: bool = False,
) -> ImageDetector:
    """Open a checkpoint or an exported file.

    Args:
        path: Checkpoint, or a file with a suffix of :data:`BACKENDS`.
        device: ``auto``, ``cpu``, ``cuda``, ``cuda:1``, ...
        precision: Of a checkpoint's network; an exported file keeps its own, so only ``auto`` goes with it.
        branches: Head branches of a checkpoint to run; a file has the deployed one alone.
        is_fused: Fold a checkpoint's batch normalisation.

    Raises:
        FileNotFoundError: No such file.
        ValueError: It cannot be read or run here, or the package that runs it is not installed.
    """
    path = Path(path)
    backend = BACKENDS.get(path.suffix.lower())
    if backend is None:
        return Detector.from_checkpoint(path, device, precision, branches, is_fused)
    if not path.is_file():
        raise FileNotFoundError(f"exported file: found no file {path}")
    chosen = choose_device("cpu" if device == "auto" and not backend.runs_on_gpu else device)
    if chosen.type != "cpu" and not backend.runs_on_gpu:
        raise ValueError(f"device: a {path.suffix} file runs on the cpu here, found {device!r}")
    if backend.extra:
        require(backend.package, backend.extra, f"running a {path.suffix} file")
    detector = ExportedDetector(backend.open(path, chosen), path, chosen)
    if precision not in ("auto", detector.precision):
        raise ValueError(f"precision: {path} was exported in {detector.precision}, found {precision!r}; leave it out")
    return detector


def _open_onnx(path: Path, device: torch.device) -> Program:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    providers: list[Any] = ["CPUExecutionProvider"]
    if device.type == "cuda":
        if "CUDAExecutionProvider" not in onnxruntime.get_available_providers():
            raise ValueError(f"device: this onnxruntime has no CUDA, found {device}; take cpu or onnxruntime-gpu")
        providers.insert(0, ("CUDAExecutionProvider", {"device_id": device.index or 0}))
    try:
        session = onnxruntime.InferenceSession(str(path), options, providers=providers)
    except Exception as error:
        raise ValueError(f"{path} cannot be read: {str(error).partition(chr(10))[0]}") from error

    def run(pixels: np.ndarray) -> np.ndarray:
        output: np.ndarray = session.run(None, {INPUT_NAME: pixels})[0]
        return output

    return Program(dict(session.get_modelmeta().custom_metadata_map), run)


BACKENDS: dict[str, Backend] = {".onnx": Backend(_open_onnx, "onnxruntime", "export")}
