import numpy as np
import pytest
import torch

from lucid_yolo.geometry.letterbox import boxes_to_src, letterbox


@pytest.mark.parametrize(
    ("height", "width", "size", "prepared", "offset", "reason"),
    [
        (480, 640, 640, (480, 640), (80, 0), "landscape, no resize"),
        (640, 480, 640, (640, 480), (0, 80), "portrait"),
        (100, 100, 640, (640, 640), (0, 0), "square, enlarged"),
        (333, 500, 640, (426, 640), (107, 0), "odd sides: 426.24 rounds down"),
        (335, 501, 64, (43, 64), (10, 0), "odd fill: the extra row goes below"),
        (1, 5000, 640, (1, 640), (319, 0), "a sliver keeps one row"),
    ],
)
def test_rule(
    height: int, width: int, size: int, prepared: tuple[int, int], offset: tuple[int, int], reason: str
) -> None:
    box = letterbox(height, width, size)
    assert (box.height_px, box.width_px) == prepared, reason
    assert (box.top_px, box.left_px) == offset, reason


def test_whole_image_maps_onto_the_resized_rectangle() -> None:
    box = letterbox(335, 501, 64)
    mapped = box.boxes_to_px(np.array([[0.0, 0.0, 501.0, 335.0]]))
    np.testing.assert_allclose(mapped, [[0, 10, 64, 53]], atol=1e-12)


@pytest.mark.parametrize("shape", [(4,), (0, 4), (7, 4), (2, 3, 4)])
def test_round_trip_and_torch_agreement(shape: tuple[int, ...]) -> None:
    corners = np.random.default_rng(0).uniform(0, 300, shape)
    corners[..., 2:] = np.maximum(corners[..., 2:], corners[..., :2])
    box = letterbox(301, 487, 640)
    there = box.boxes_to_px(corners)
    np.testing.assert_allclose(box.boxes_to_src(there), corners, atol=1e-10)
    there_torch = box.boxes_to_px(torch.from_numpy(corners))
    assert torch.equal(there_torch, torch.from_numpy(there))
    assert torch.equal(box.boxes_to_src(there_torch), torch.from_numpy(box.boxes_to_src(there)))


def test_dtype_is_kept() -> None:
    box = letterbox(301, 487, 640)
    assert box.boxes_to_src(torch.zeros(2, 4)).dtype == torch.float32
    assert box.boxes_to_src(np.zeros((2, 4), np.float32)).dtype == np.float32


@pytest.mark.parametrize(
    ("boxes_px", "expected_src", "reason"),
    [
        ([-50, -50, 900, 900], [0, 0, 640, 480], "larger than the canvas"),
        ([10, 0, 20, 60], [10, 0, 20, 0], "inside the fill: a line on the border"),
        ([100, 180, 90, 200], [100, 100, 100, 120], "inverted along x: collapsed, not swapped"),
    ],
)
def test_back_to_source_is_clipped_and_never_inverted(
    boxes_px: list[float], expected_src: list[float], reason: str
) -> None:
    box = letterbox(480, 640, 640)
    found = box.boxes_to_src(np.array(boxes_px, np.float64))
    np.testing.assert_allclose(found, expected_src, err_msg=reason)
    np.testing.assert_allclose(box.boxes_to_src(torch.tensor(boxes_px, dtype=torch.float64)).numpy(), found)


def test_input_is_not_changed() -> None:
    boxes = np.array([[-5.0, -5.0, 900.0, 900.0]])
    letterbox(480, 640, 640).boxes_to_src(boxes)
    np.testing.assert_array_equal(boxes, [[-5, -5, 900, 900]])


def test_empty_image_is_named() -> None:
    with pytest.raises(ValueError, match="0 x 640"):
        letterbox(0, 640, 640)


def test_boxes_of_many_images_map_as_those_of_one(rng: np.random.Generator) -> None:
    letterboxes = [letterbox(height, width, 96) for height, width in ((301, 487), (64, 64), (50, 1), (7, 900))]
    boxes = rng.uniform(-20, 120, (4, 50, 4))
    found = boxes_to_src(boxes, letterboxes)
    for i, box in enumerate(letterboxes):
        assert found[i].tobytes() == box.boxes_to_src(boxes[i]).tobytes()
    assert boxes_to_src(boxes[:0].astype(np.float32), []).shape == (0, 50, 4)
