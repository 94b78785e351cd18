"""NMS-free real-time detectors: train, evaluate, predict."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from lucid_yolo.predict.predictor import Predictor
    from lucid_yolo.predict.results import Results

__version__ = "0.1.0.dev0"
__all__ = ["Results", "__version__", "load"]


def load(
    path: str | Path,
    device: str = "auto",
    *,
    conf: float = 0.25,
    batch_size: int = 16,
    max_det: int = 300,
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "auto",
) -> Predictor:
    """Load a checkpoint, or a file that ``lucid-export`` wrote, for prediction.

    Args:
        path: File, such as ``runs/detect/1/checkpoints/best.ckpt`` or ``best.onnx``.
        device: ``auto`` (a GPU where there is one), ``cpu``, ``cuda``, ``cuda:1``, ...
        conf: Least confidence of a detection, [0, 1].
        batch_size: Most pictures per batch, at least 1.
        max_det: Most detections per picture, [1, 300].
        precision: Precision of the network; ``auto`` is bf16 on a GPU that has it, fp32 otherwise. An exported file
            keeps its own.

    Returns:
        A predictor; ``predict(source)`` yields one result per picture.

    Raises:
        FileNotFoundError: No such file.
        ValueError: The file was not written by this package, or an argument is out of range.
    """
    # Imported late, so that importing the package stays quick.
    from lucid_yolo.predict.backends import open_detector
    from lucid_yolo.predict.predictor import BRANCH, Predictor

    detector = open_detector(path, device, precision, branches=(BRANCH,), is_fused=True)
    return Predictor(detector, conf, batch_size, max_det)


def __getattr__(name: str) -> Any:
    """Import what is looked up for the first time."""
    if name == "Results":
        from lucid_yolo.predict.results import Results

        return Results
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
