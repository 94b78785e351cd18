"""NMS-free real-time detectors: train, evaluate, predict."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from lightning.pytorch import Callback

    from lucid_yolo.cli.training import TrainResult
    from lucid_yolo.predict.predictor import Predictor
    from lucid_yolo.predict.results import Results

__version__ = "0.1.0.dev0"
__all__ = ["Results", "__version__", "load", "train"]


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
    from lucid_yolo.models.head import DEPLOYED
    from lucid_yolo.predict.backends import open_detector
    from lucid_yolo.predict.predictor import Predictor

    detector = open_detector(path, device, precision, branches=(DEPLOYED,), is_fused=True)
    return Predictor(detector, conf, batch_size, max_det)


def train(
    recipe: str | Path | None = None,
    data_root: str | Path | None = None,
    *,
    variant: Literal["n", "s", "m", "l", "x"] | None = None,
    max_epochs: int | None = None,
    callbacks: Sequence[Callback] = (),
    **overrides: Any,
) -> TrainResult:
    """Train a detector: what ``lucid-yolo fit`` does, with the same values, files and result.

    Call it under ``if __name__ == "__main__":`` in a script, for worker processes import the script; in a notebook as
    it is.

    Args:
        recipe: Packaged recipe, such as ``detect``, or a file; None for ``detect``, or for the configuration of the
            run that ``ckpt_path`` belongs to.
        data_root: Data set: a folder or a data YAML.
        variant: Scale.
        max_epochs: Length of the run.
        callbacks: Lightning callbacks, besides the package's own.
        **overrides: Any flag of ``lucid-yolo fit`` by its dotted name, such as ``**{"data.batch_size": 8}``, or
            ``data={"batch_size": 8}``; also ``ckpt_path``, ``run_dir`` and ``seed_everything``.

    Returns:
        The run folder, its best checkpoint and its metrics; ``load()`` gives the predictor.

    Raises:
        FileNotFoundError: No such file.
        ValueError: An unknown name, a wrong value, or data that cannot be trained on.
    """
    from lucid_yolo.cli.training import train as fit

    named = {"data.data_root": data_root, "variant": variant, "trainer.max_epochs": max_epochs}
    given = {name: value for name, value in named.items() if value is not None}
    return fit(None if recipe is None else str(recipe), callbacks, given | overrides)


def __getattr__(name: str) -> Any:
    """Import what is looked up for the first time."""
    if name == "Results":
        from lucid_yolo.predict.results import Results

        return Results
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
