"""Opens what can find objects: a checkpoint, or a file that ``lucid-export`` wrote, by the suffix."""

from __future__ import annotations

import importlib
import json
import threading
import warnings
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import UInt8
from torch import Tensor

from lucid_yolo.models.head import BRANCHES, DEPLOYED
from lucid_yolo.runtime.deployed_meta import (
    EXECUTORCH_METHOD,
    INPUT_NAME,
    LITERT_ENTRY,
    RT_INFO_SECTION,
    TORCHSCRIPT_ENTRY,
    DeployedMeta,
)
from lucid_yolo.runtime.detector import Detector, ImageDetector, choose_device
from lucid_yolo.runtime.precision import PrecisionName
from lucid_yolo.structures import Detections


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


class UnavailableDeviceError(ValueError):
    """The installed runtime has not the device that is asked for; the file may be fine."""


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

    Threads may share it; they take turns, for not every runtime lets several in at once.

    Args:
        program: The opened file.
        path: Where it lies, for messages.
        device: Where it runs.
    """

    branches = (DEPLOYED,)

    def __init__(self, program: Program, path: Path, device: torch.device) -> None:
        self.deployed = DeployedMeta.from_strings(program.entries, path)
        self.meta = self.deployed.model
        self.precision = self.deployed.precision
        self.device = device
        self.path = path
        self._program = program
        self._turn = threading.Lock()

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
        with self._turn:
            found_rows = [np.array(self._program.run(piece), np.float32) for piece in pieces]
        rows = torch.from_numpy(np.concatenate(found_rows))
        label = rows[..., 5].round().long()
        return {DEPLOYED: Detections(rows[..., :4], rows[..., 4], label, torch.full_like(label, -1))}


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
        device: ``auto``, ``cpu``, ``cuda``, ``cuda:1``, ...; for an exported file ``auto`` is the CPU.
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
    chosen = choose_device("cpu" if device == "auto" else device)
    if chosen.type != "cpu" and not backend.runs_on_gpu:
        raise ValueError(f"device: a {path.suffix} file runs on the cpu here, found {device!r}")
    if backend.extra:
        require(backend.package, backend.extra, f"running a {path.suffix} file")
    detector = ExportedDetector(_open(backend, path, chosen), path, chosen)
    if precision not in ("auto", detector.precision):
        raise ValueError(f"precision: {path} was exported in {detector.precision}, found {precision!r}; leave it out")
    return detector


def _open(backend: Backend, path: Path, device: torch.device) -> Program:
    try:
        return backend.open(path, device)
    except UnavailableDeviceError:
        raise
    except Exception as error:  # every runtime has its own
        raise ValueError(f"{path} cannot be read: {str(error).partition(chr(10))[0]}") from error


def _open_onnx(path: Path, device: torch.device) -> Program:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    providers: list[Any] = ["CPUExecutionProvider"]
    if device.type == "cuda":
        if "CUDAExecutionProvider" not in onnxruntime.get_available_providers():
            raise UnavailableDeviceError(
                f"device: found {device}, but the installed onnxruntime runs on the CPU alone; take device cpu, or "
                "install onnxruntime-gpu in the place of onnxruntime"
            )
        providers.insert(0, ("CUDAExecutionProvider", {"device_id": device.index or 0}))
    session = onnxruntime.InferenceSession(str(path), options, providers=providers)
    if device.type == "cuda" and "CUDAExecutionProvider" not in session.get_providers():
        raise UnavailableDeviceError(
            f"device: found {device}, but onnxruntime could not start CUDA, its own message says why; take device cpu, "
            "or install the CUDA libraries that it names"
        )

    def run(pixels: np.ndarray) -> np.ndarray:
        output: np.ndarray = session.run(None, {INPUT_NAME: pixels})[0]
        return output

    return Program(dict(session.get_modelmeta().custom_metadata_map), run)


def _open_openvino(path: Path, _device: torch.device) -> Program:
    import openvino

    core = openvino.Core()
    model = core.read_model(path)
    entries = model.get_rt_info(RT_INFO_SECTION).astype(dict) if model.has_rt_info(RT_INFO_SECTION) else {}
    options = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": torch.get_num_threads()}
    compiled = core.compile_model(model, "CPU", options)

    def run(pixels: np.ndarray) -> np.ndarray:
        output: np.ndarray = compiled({INPUT_NAME: pixels})[0]
        return output

    return Program(
        {name: str(entry.value if hasattr(entry, "value") else entry) for name, entry in entries.items()}, run
    )


def _open_torchscript(path: Path, device: torch.device) -> Program:
    extra = {TORCHSCRIPT_ENTRY: ""}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        module = torch.jit.load(  # type: ignore[no-untyped-call]
            str(path), map_location=device, _extra_files=extra
        )

    def run(pixels: np.ndarray) -> np.ndarray:
        with torch.inference_mode():
            output: np.ndarray = module(torch.from_numpy(pixels).to(device)).cpu().numpy()
        return output

    return Program(json.loads(extra[TORCHSCRIPT_ENTRY] or "{}"), run)


def _open_executorch(path: Path, _device: torch.device) -> Program:
    from executorch.runtime import Runtime

    program = Runtime.get().load_program(path)
    entries: dict[str, str] = {}
    if EXECUTORCH_METHOD in program.method_names:
        entries = json.loads(program.load_method(EXECUTORCH_METHOD).execute([])[0])
    method = program.load_method("forward")

    def run(pixels: np.ndarray) -> np.ndarray:
        output: np.ndarray = method.execute([torch.from_numpy(pixels)])[0].numpy()
        return output

    return Program(entries, run, has_fixed_batch=True)


def _open_litert(path: Path, _device: torch.device) -> Program:
    from ai_edge_litert.interpreter import Interpreter

    entries: dict[str, str] = {}
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            entries = json.loads(archive.read(LITERT_ENTRY)) if LITERT_ENTRY in archive.namelist() else {}
    interpreter = Interpreter(str(path), num_threads=torch.get_num_threads())
    interpreter.allocate_tensors()
    source, target = (x[0]["index"] for x in (interpreter.get_input_details(), interpreter.get_output_details()))

    def run(pixels: np.ndarray) -> np.ndarray:
        interpreter.set_tensor(source, pixels)
        interpreter.invoke()
        output: np.ndarray = interpreter.get_tensor(target)
        return output

    return Program(entries, run, has_fixed_batch=True)


BACKENDS: dict[str, Backend] = {
    ".onnx": Backend(_open_onnx, "onnxruntime", "export", runs_on_gpu=True),
    ".xml": Backend(_open_openvino, "openvino", "export"),
    ".torchscript": Backend(_open_torchscript, "torch", "", runs_on_gpu=True),
    ".pte": Backend(_open_executorch, "executorch.runtime", "executorch"),
    ".tflite": Backend(_open_litert, "ai_edge_litert.interpreter", "litert"),
}
