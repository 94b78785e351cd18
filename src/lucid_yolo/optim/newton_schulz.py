"""Approximate orthogonalisation of many matrices in a few batches.

Source: K. Jordan, "Muon" (2024), and arXiv:2502.16982: the quintic iteration and its constants.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
STEPS = 5
EPS = 1e-7


def newton_schulz(matrices: Float[Tensor, "n r c"]) -> Float[Tensor, "n r c"]:
    """Push the singular values of every matrix towards 1.

    ``X <- P X`` with ``P = aI + bA + cA^2``, ``A = X X^T``, from ``X = G / (|G| + 1e-7)``. Rows and columns of zeros
    stay zero, so matrices of different size may share a batch; a zero matrix gives exactly zero.

    The iteration runs on the small side alone: ``A <- P A P`` and ``Q <- P Q``, and the long side is met twice, in the
    first ``A`` and in ``Q X``. In float32 the result is within 1e-3 of the plain iteration in float64.

    Args:
        matrices: Batch with ``r <= c``.
    """
    a, b, c = COEFFICIENTS
    norm = matrices.square().sum((1, 2), keepdim=True).sqrt()
    x = matrices / (norm + EPS)
    gram = torch.bmm(x, x.transpose(1, 2))
    product: Tensor | None = None
    for step in range(STEPS):
        poly = torch.baddbmm(gram, gram, gram, beta=b, alpha=c)
        poly.diagonal(dim1=1, dim2=2).add_(a)
        product = poly if product is None else torch.bmm(poly, product)
        if step + 1 < STEPS:
            gram = torch.bmm(torch.bmm(poly, gram), poly)
    assert product is not None
    return torch.bmm(product, x)


@dataclass(frozen=True)
class MatrixBatch:
    """Which matrices share one padded batch.

    Attributes:
        members: Position of each matrix in the caller's list.
        rows: Padded small side.
        columns: Padded long side.
    """

    members: tuple[int, ...]
    rows: int
    columns: int


def plan_batches(shapes: Sequence[tuple[int, int]], max_batches: int = 4) -> list[MatrixBatch]:
    """Group matrices into at most ``max_batches`` padded batches with the least arithmetic.

    Args:
        shapes: (small side, long side) of every matrix.
        max_batches: Upper bound on the number of batches.
    """
    order = sorted(range(len(shapes)), key=lambda i: shapes[i])
    cost, cut = _cheapest_cuts([shapes[i] for i in order], max_batches)
    batches: list[MatrixBatch] = []
    stop = len(order)
    count = min(range(1, max_batches + 1), key=lambda n: cost[n][stop]) if order else 0
    while stop > 0:
        start = cut[count][stop]
        members = tuple(order[start:stop])
        rows, columns = (max(shapes[i][axis] for i in members) for axis in (0, 1))
        batches.append(MatrixBatch(members, rows, columns))
        stop, count = start, count - 1
    return batches[::-1]


def _cheapest_cuts(shapes: Sequence[tuple[int, int]], max_batches: int) -> tuple[list[list[float]], list[list[int]]]:
    """Return the least cost of the first ``j`` sorted shapes in ``n`` runs and the last run's start, both [n][j]."""
    size = len(shapes)
    infinity = float("inf")
    cost = [[infinity] * (size + 1) for _ in range(max_batches + 1)]
    cut = [[0] * (size + 1) for _ in range(max_batches + 1)]
    cost[0][0] = 0.0
    for stop in range(1, size + 1):
        rows = columns = 0
        for start in range(stop - 1, -1, -1):
            rows, columns = max(rows, shapes[start][0]), max(columns, shapes[start][1])
            run = (stop - start) * (4.0 * rows * rows * columns + 2.0 * rows**3)
            for count in range(1, max_batches + 1):
                if cost[count - 1][start] + run < cost[count][stop]:
                    cost[count][stop], cut[count][stop] = cost[count - 1][start] + run, start
    return cost, cut
