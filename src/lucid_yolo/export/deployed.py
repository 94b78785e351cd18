"""The graph that is exported: picture in, ranked detections out, of the one-to-one branch alone."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from lucid_yolo.models.head import DEPLOYED, Branch, OutputConv
from lucid_yolo.models.network import Network, fuse
from lucid_yolo.models.scales import STRIDES

NUM_COLUMNS = 6


class DeployedNetwork(nn.Module):
    """Fused network, ranking and box decoding in one graph: ``[B, 3, H, W]`` in [0, 1] to ``[B, D, 6]``.

    The rows are what :func:`~lucid_yolo.decode.one_to_one.decode_one_to_one` gives: corners in input pixels, score,
    class, best first. The last 1x1 layers stay float32 at any precision.

    Args:
        network: A trained network; it is not changed.
        max_detections: Rows per picture ``D``; rows that hold nothing have score 0.
        is_half: Compute everything before the last layers in float16; input and output stay float32.
        has_exact_ties: Rank by a stable sort, slower than a top-k, for formats whose top-k promises no order of equals
            and that have the sort.
    """

    def __init__(
        self, network: Network, max_detections: int = 300, *, is_half: bool = False, has_exact_ties: bool = False
    ) -> None:
        super().__init__()
        fused = fuse(copy.deepcopy(network).cpu().float(), (DEPLOYED,)).to(memory_format=torch.contiguous_format)
        branch = fused.head.branches[DEPLOYED]
        assert isinstance(branch, Branch)
        self.backbone, self.neck = fused.backbone, fused.neck
        # Not the branch itself: its name for the classes is a keyword of the code that torch generates.
        self.box_stems, self.class_stems = branch.stems["box"], branch.stems["class"]
        self.max_detections = max_detections
        self.dtype = torch.float16 if is_half else torch.float32
        self.has_exact_ties = has_exact_ties
        if is_half:
            self.half()
            for module in self.modules():
                if isinstance(module, OutputConv):
                    module.float()

    def forward(self, images: Float[Tensor, "B 3 H W"]) -> Float[Tensor, "B D 6"]:
        """Return x1, y1, x2, y2, score, class per row.

        Args:
            images: RGB in [0, 1]; H and W multiples of 32.
        """
        maps = self.neck(self.backbone(images.to(self.dtype)))
        box_ltrb_cell, class_logit = _run_stems(self.box_stems, maps), _run_stems(self.class_stems, maps)
        score, point_index, label = self._rank(class_logit)
        boxes = self._boxes(box_ltrb_cell, point_index, maps)
        rows = torch.cat((boxes, score.unsqueeze(-1), label.unsqueeze(-1).float()), -1)
        return F.pad(rows, (0, 0, 0, self.max_detections - rows.shape[1]))

    def _rank(
        self, class_logit: Float[Tensor, "B K A"]
    ) -> tuple[Float[Tensor, "B D"], Int[Tensor, "B D"], Int[Tensor, "B D"]]:
        """Return (score, point index, class) of the best pairs: equal scores in order of point, then class.

        As in ``decode/one_to_one.py`` only the pairs of the best points are ranked. The sigmoid is taken of their
        logits alone; it never decreases, so the best probability of a point is that of its best logit.
        """
        num_classes, num_points = class_logit.shape[1:]
        num_kept = min(self.max_detections, num_points)
        _, point_index = self._top(class_logit.amax(1).sigmoid(), num_kept)
        # In order of position. As a top-k of floats, since not every runtime sorts integers; they are below 2**24.
        point_index = point_index.float().neg().topk(num_kept, -1).values.neg().long()
        kept_logit = class_logit.gather(2, point_index.unsqueeze(1).expand(-1, num_classes, -1))
        prob = kept_logit.sigmoid().transpose(1, 2).flatten(1)
        score, pair_index = self._top(prob, min(self.max_detections, num_kept * num_classes))
        chosen = torch.div(pair_index, num_classes, rounding_mode="floor")
        return score, point_index.gather(1, chosen), pair_index - chosen * num_classes

    def _top(
        self, values: Float[Tensor, "B N"], k: int | torch.SymInt | Tensor
    ) -> tuple[Float[Tensor, "B k"], Int[Tensor, "B k"]]:
        """Return the best values and their index; while torch traces a graph, ``k`` may be symbolic or a tensor."""
        if self.has_exact_ties:
            ranked = values.sort(dim=-1, descending=True, stable=True)
            return ranked.values[:, :k], ranked.indices[:, :k]
        found = values.topk(k, -1)  # type: ignore[arg-type]
        return found.values, found.indices

    def _boxes(
        self, box_ltrb_cell: Float[Tensor, "B 4 A"], point_index: Int[Tensor, "B D"], maps: Sequence[Tensor]
    ) -> Float[Tensor, "B D 4"]:
        """Return the corners of the chosen points."""
        distances = box_ltrb_cell.gather(2, point_index.unsqueeze(1).expand(-1, 4, -1)).transpose(1, 2)
        center_x, center_y, stride = anchor_table(maps)[:, point_index].unsqueeze(-1).unbind(0)
        center = torch.cat((center_x, center_y), -1)
        left_top, right_bottom = (distances * stride).chunk(2, -1)
        return torch.cat((center - left_top, center + right_bottom), -1)


def _run_stems(levels: nn.Module, maps: Sequence[Tensor]) -> Float[Tensor, "B C A"]:
    """Return one quantity at the points of all levels, channels first as convolutions leave it."""
    assert isinstance(levels, nn.ModuleList)
    outputs = []
    for level, x in zip(levels, maps, strict=True):
        assert isinstance(level, nn.Sequential)
        *hidden, last = level
        assert isinstance(last, OutputConv)
        for layer in hidden:
            x = layer(x)
        outputs.append(F.conv2d(x.float(), last.weight, last.bias).flatten(2))
    return torch.cat(outputs, 2)


def anchor_table(maps: Sequence[Tensor]) -> Float[Tensor, "3 A"]:
    """Return centre x, centre y and stride of every point, from the sizes of the maps, which may be symbolic.

    Args:
        maps: Neck maps, finest first.
    """
    levels = []
    for stride, x in zip(STRIDES, maps, strict=True):
        height, width = x.shape[2:]
        center_x = (torch.arange(width, dtype=torch.float32) + 0.5) * stride
        center_y = (torch.arange(height, dtype=torch.float32) + 0.5) * stride
        grid = (center_x.expand(height, width), center_y[:, None].expand(height, width))
        levels.append(torch.stack([*grid, torch.full((height, width), float(stride))]).flatten(1))
    return torch.cat(levels, 1)
