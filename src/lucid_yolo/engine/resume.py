"""Continuing a saved run: what both must share, and the random generators."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch


def check_same_run(saved: Mapping[str, Any], run: Mapping[str, Any], is_override: bool) -> None:
    """Refuse to continue a run as another one.

    Args:
        saved: What the run in the checkpoint was.
        run: What it is to be; every entry is compared.
        is_override: Differences are wanted.

    Raises:
        ValueError: Some entries differ; the message names them with both values.
    """
    before = {"optimizer": run["optimizer"], "freeze": 0, **saved}  # the first runs saved neither
    differing = [f"{key}: {before.get(key)} saved, {run[key]} now" for key in run if before.get(key) != run[key]]
    if differing and not is_override:
        raise ValueError(f"resume: the run differs from the saved one; --resume_override allows it: {differing}")


def check_unfinished(update_index: int, num_updates: int) -> None:
    """Refuse to continue a run that has reached its end.

    Args:
        update_index: Updates done.
        num_updates: Updates of the run.

    Raises:
        ValueError: None are left.
    """
    if update_index >= num_updates:
        raise ValueError(f"resume: the run in the checkpoint is finished after {num_updates} updates")


def random_state() -> dict[str, Any]:
    """Return the process's generators as plain values."""
    name, keys, *rest = np.random.get_state()
    return {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
        "python": random.getstate(),
        "numpy": (name, np.asarray(keys).tolist(), *rest),
    }


def restore_random_state(state: Mapping[str, Any]) -> None:
    """Set the process's generators; those of GPUs only where there are as many as there were.

    Args:
        state: From :func:`random_state`.
    """
    torch.set_rng_state(state["torch"])
    if torch.cuda.is_available() and len(state["cuda"]) == torch.cuda.device_count():
        torch.cuda.set_rng_state_all(state["cuda"])
    random.setstate(state["python"])
    np.random.set_state(state["numpy"])
