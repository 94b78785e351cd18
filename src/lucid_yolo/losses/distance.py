"""L1 loss on side distances."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor


def distance_l1_loss(
    pred_ltrb_cell: Float[Tensor, "*N 4"], target_ltrb_cell: Float[Tensor, "*N 4"]
) -> Float[Tensor, "*N"]:
    """Return the mean absolute difference of the four side distances, in strides.

    Source: arXiv:2606.03748 Sec. 3.2 and S3 (an L1 term on direct distances in place of the distribution loss); unit
    and mean are this project's choice, see the decision on the L1 form.
    """
    return (pred_ltrb_cell - target_ltrb_cell).abs().mean(-1)
