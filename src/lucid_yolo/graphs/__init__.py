"""Recording a function on the device once and replaying it as one CUDA graph. Knows torch, nothing else."""

from __future__ import annotations

from lucid_yolo.graphs.blame import ModuleTrace
from lucid_yolo.graphs.runner import EagerRunner, RecordingError, ReplayRunner, RunCounts, Runner
from lucid_yolo.graphs.signature import Signature, signature_of
from lucid_yolo.graphs.streams import side_by_side

__all__ = [
    "EagerRunner",
    "ModuleTrace",
    "RecordingError",
    "ReplayRunner",
    "RunCounts",
    "Runner",
    "Signature",
    "side_by_side",
    "signature_of",
]
