"""One page per task."""

from __future__ import annotations

from lucid_yolo.tasks.detect import DetectTask
from lucid_yolo.tasks.task import Task

TASKS: dict[str, type[DetectTask]] = {DetectTask.name: DetectTask}

__all__ = ["TASKS", "DetectTask", "Task"]
