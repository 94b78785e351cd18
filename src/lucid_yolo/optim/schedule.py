"""Everything that changes over a run, as one table indexed by the update."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

COLUMNS = ("lr", "momentum", "one_to_many_weight", "ema_rate")


@dataclass(frozen=True)
class ScheduleConfig:
    """Schedules of a run.

    Attributes:
        lr0: Peak learning rate.
        lrf: Final learning rate as a fraction of ``lr0``; linear decay per update.
        momentum: Momentum after the warm-up.
        warmup_epochs: Length of the linear warm-up of learning rate and momentum.
        warmup_momentum: Momentum that the warm-up starts from; the first update is one step of the way on.
        one_to_many_start: Weight of the one-to-many branch in the first epoch; the other branch has the rest.
        one_to_many_end: Its weight in the last epoch; linear between, constant within an epoch.
        ema_decay: Ceiling of the decay of the averaged parameters.
        ema_ramp: Time constant, in updates, of its approach to the ceiling.
    """

    lr0: float = 0.01
    lrf: float = 0.01
    momentum: float = 0.937
    warmup_epochs: float = 3.0
    warmup_momentum: float = 0.8
    one_to_many_start: float = 0.8
    one_to_many_end: float = 0.1
    ema_decay: float = 0.9999
    ema_ramp: float = 2000.0

    def __post_init__(self) -> None:
        if self.lr0 < 0 or not 0 <= self.lrf <= 1:
            raise ValueError(f"schedule: expected lr0 >= 0 and lrf in [0, 1], found lr0={self.lr0}, lrf={self.lrf}")
        for name in ("one_to_many_start", "one_to_many_end"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name}: expected a weight in [0, 1], found {getattr(self, name)}")


@dataclass(frozen=True)
class RunLength:
    """How long a run is; what a schedule is stretched over.

    Attributes:
        batches_per_epoch: Micro-steps per epoch.
        num_epochs: Epochs of the run.
        accumulate: Micro-steps per update; an update may straddle epochs.
    """

    batches_per_epoch: int
    num_epochs: int
    accumulate: int = 1

    @property
    def num_batches(self) -> int:
        """Micro-steps of the run."""
        return self.batches_per_epoch * self.num_epochs

    @property
    def num_updates(self) -> int:
        """Updates of the run; at least 1."""
        return max(self.num_batches // self.accumulate, 1)


def warmup_updates(config: ScheduleConfig, run: RunLength) -> int:
    """Return the warm-up's length: at least 50 updates, at most a tenth of the run or the configured epochs."""
    if config.warmup_epochs <= 0:
        return 0
    wanted = min(config.warmup_epochs * run.batches_per_epoch / run.accumulate, 0.1 * run.num_updates)
    return min(max(50, round(wanted)), run.num_updates)


def build_schedule(config: ScheduleConfig, run: RunLength) -> Float[Tensor, "updates columns"]:
    """Return one row per update, columns as :data:`COLUMNS`.

    Args:
        config: The schedules.
        run: Length of the run; a longer run has another branch weight in every epoch.

    Source: arXiv:2606.03748 Eq. 2-3 (branch weight); arXiv:2405.14458 Table 14 (linear decay, warm-up momentum).
    """
    t = torch.arange(run.num_updates, dtype=torch.float64)
    ramp = ((t + 1) / max(warmup_updates(config, run), 1)).clamp(max=1.0)
    decay = 1 - (1 - config.lrf) * t / run.num_updates
    epoch = torch.div(t * run.accumulate, run.batches_per_epoch, rounding_mode="floor")
    progress = (1 - epoch / max(run.num_epochs - 1, 1)).clamp(min=0)
    columns = {
        "lr": config.lr0 * ramp * decay,
        "momentum": config.warmup_momentum + (config.momentum - config.warmup_momentum) * ramp,
        "one_to_many_weight": progress * (config.one_to_many_start - config.one_to_many_end) + config.one_to_many_end,
        "ema_rate": 1 - config.ema_decay * (1 - torch.exp(-(t + 1) / config.ema_ramp)),
    }
    return torch.stack([columns[name] for name in COLUMNS], 1).float()
