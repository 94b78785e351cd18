from itertools import combinations

import numpy as np
import pytest
import torch

from lucid_yolo.models.head import detection_stems
from lucid_yolo.models.network import Network, on_meta
from lucid_yolo.optim.newton_schulz import COEFFICIENTS, EPS, STEPS, newton_schulz, plan_batches
from tolerances import FLOAT32


def polynomial(singular: np.ndarray) -> np.ndarray:
    for _ in range(5):
        singular = 3.4445 * singular - 4.7750 * singular**3 + 2.0315 * singular**5
    return singular


@pytest.mark.parametrize("shape", [(1, 1), (1, 9), (8, 8), (16, 40)])
def test_applies_the_quintic_to_the_singular_values(shape: tuple[int, int], rng: np.random.Generator) -> None:
    matrices = rng.normal(size=(3, *shape))
    left, singular, right = np.linalg.svd(matrices, full_matrices=False)
    norm = np.sqrt((matrices**2).sum((1, 2)))[:, None] + 1e-7
    expected = (left * polynomial(singular / norm)[:, None, :]) @ right
    result = newton_schulz(torch.tensor(matrices))
    np.testing.assert_allclose(result.numpy(), expected, rtol=1e-6, atol=1e-8)
    single = newton_schulz(torch.tensor(matrices, dtype=torch.float32))
    torch.testing.assert_close(single.double(), result, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e4])
def test_singular_values_come_near_one(scale: float, rng: np.random.Generator) -> None:
    matrices = torch.tensor(rng.normal(size=(4, 16, 64)) * scale, dtype=torch.float32)
    singular = torch.linalg.svdvals(newton_schulz(matrices))
    assert singular.min() > 0.6
    assert singular.max() < 1.25


def test_zero_matrix_gives_exactly_zero() -> None:
    matrices = torch.randn(3, 4, 6)
    matrices[1] = 0
    result = newton_schulz(matrices)
    assert torch.equal(result[1], torch.zeros(4, 6))
    assert torch.isfinite(result).all()


def test_padding_changes_nothing() -> None:
    matrix = torch.randn(1, 5, 9, dtype=torch.float64)
    padded = torch.zeros(1, 8, 20, dtype=torch.float64)
    padded[:, :5, :9] = matrix
    result = newton_schulz(padded)
    torch.testing.assert_close(result[:, :5, :9], newton_schulz(matrix), rtol=0, atol=1e-14)
    padding = result.clone()
    padding[:, :5, :9] = 0
    assert torch.equal(padding, torch.zeros_like(padding)), "not a trace of the padding"


def test_members_of_a_batch_do_not_mix() -> None:
    matrices = torch.randn(3, 4, 6)
    alone = torch.cat([newton_schulz(m[None]) for m in matrices])
    torch.testing.assert_close(newton_schulz(matrices), alone, **FLOAT32)


def network_shapes() -> list[tuple[int, int]]:
    network = on_meta(lambda: Network("n", lambda channels: detection_stems(channels, 80)))
    flat = [p.flatten(1).shape for p in network.parameters() if p.dim() == 4]
    return [(min(shape), max(shape)) for shape in flat]


@pytest.mark.parametrize("shapes", [[], [(3, 5)], [(1, 9)] * 4, [(i, 2 * i) for i in range(1, 30)], network_shapes()])
def test_plan_covers_every_matrix_once(shapes: list[tuple[int, int]]) -> None:
    batches = plan_batches(shapes)
    assert len(batches) <= 6
    assert sorted(member for batch in batches for member in batch.members) == list(range(len(shapes)))
    for batch in batches:
        assert batch.rows == max(shapes[m][0] for m in batch.members)
        assert batch.columns == max(shapes[m][1] for m in batch.members)


def arithmetic(batches: list[list[tuple[int, int]]]) -> float:
    """Multiply-adds of one iteration, up to a factor."""
    total = 0.0
    for members in batches:
        rows, columns = (max(shape[axis] for shape in members) for axis in (0, 1))
        total += len(members) * (4.0 * rows * rows * columns + 2.0 * rows**3)
    return total


def test_plan_is_the_cheapest_of_all_cuts(rng: np.random.Generator) -> None:
    for _ in range(20):
        shapes = [(int(min(pair)), int(max(pair))) for pair in rng.integers(1, 40, (8, 2))]
        ordered = sorted(shapes)
        best = min(
            arithmetic([ordered[a:b] for a, b in zip((0, *cuts), (*cuts, 8), strict=True)])
            for count in range(3)
            for cuts in combinations(range(1, 8), count)
        )
        planned = [[shapes[m] for m in batch.members] for batch in plan_batches(shapes, max_batches=3)]
        assert arithmetic(planned) == best


@pytest.mark.parametrize("kind", ["random", "low rank", "badly conditioned"])
@pytest.mark.parametrize(("rows", "columns"), [(9, 128), (16, 144), (64, 64), (128, 1152)])
def test_small_side_form_stays_near_the_plain_iteration(rows: int, columns: int, kind: str) -> None:
    matrices = torch.randn(3, rows, columns)
    if kind == "low rank":
        matrices = torch.randn(3, rows, 2) @ torch.randn(3, 2, columns) + 1e-3 * matrices
    if kind == "badly conditioned":
        u, _, v = torch.linalg.svd(matrices.double(), full_matrices=False)
        matrices = ((u * torch.logspace(0, -6, rows).double()) @ v).float()
    a, b, c = COEFFICIENTS
    x = matrices.double()
    x = x / (x.square().sum((1, 2), keepdim=True).sqrt() + EPS)
    for _ in range(STEPS):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    assert (newton_schulz(matrices) - x).norm() < 1e-3 * x.norm()
