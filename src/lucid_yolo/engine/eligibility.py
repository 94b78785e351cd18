"""Whether a Trainer leaves the step free to be recorded."""

from __future__ import annotations

from lightning.pytorch import Callback, Trainer

from lucid_yolo.kernels.needs import missing_for_kernel

STEP_HOOKS = ("on_before_zero_grad", "on_before_backward", "on_after_backward", "on_before_optimizer_step")


def speed_obstacles(trainer: Trainer) -> dict[str, list[str]]:
    """Return for every option of ``Speed`` why it cannot be used under this Trainer."""
    kernel = [reason] if (reason := missing_for_kernel(trainer.strategy.root_device)) else []
    return {
        "capture_step": recording_obstacles(trainer),
        "fused_assignment": kernel,
        "fused_norm": kernel,
    }


def recording_obstacles(trainer: Trainer) -> list[str]:
    """Return why the complete step cannot be recorded under this Trainer; empty if it can."""
    obstacles = []
    device = trainer.strategy.root_device
    if device.type != "cuda":
        obstacles.append(f"the device is {device}, and recording needs CUDA")
    for callback in trainer.callbacks:  # type: ignore[attr-defined]
        hooks = [name for name in STEP_HOOKS if getattr(type(callback), name) is not getattr(Callback, name)]
        if hooks:
            obstacles.append(f"the callback {type(callback).__name__} acts inside the step ({', '.join(hooks)})")
    return obstacles
