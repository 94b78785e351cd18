"""Binary cross-entropy against soft one-hot targets."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor


def soft_one_hot(labels: Int[Tensor, "N A"], weight: Float[Tensor, "N A"], num_classes: int) -> Float[Tensor, "N A K"]:
    """Return ``weight`` at each point's label and zero elsewhere."""
    classes = torch.arange(num_classes, device=labels.device)
    return torch.where(classes == labels.unsqueeze(-1), weight.unsqueeze(-1), 0.0)


def classification_loss(
    class_logit: Float[Tensor, "N A K"],
    labels: Int[Tensor, "N A"],
    weight: Float[Tensor, "N A"],
    is_ignored: Bool[Tensor, "N A"],
) -> Float[Tensor, "N A"]:
    """Return each point's cross-entropy summed over the classes; background points learn zero everywhere.

    Args:
        class_logit: Predicted logits.
        labels: Class of the assigned target; any value where ``weight`` is 0.
        weight: Soft target of that class, 0 for background.
        is_ignored: Points without classification loss.

    Source: arXiv:2108.07755 Sec. 3.3 (soft targets); arXiv:2606.03748 (no focal weighting stated).
    """
    target = soft_one_hot(labels, weight, class_logit.shape[-1])
    loss = F.binary_cross_entropy_with_logits(class_logit, target, reduction="none").sum(-1)
    return torch.where(is_ignored, 0.0, loss)
