from __future__ import annotations

import numpy as np
import pytest
from PIL import ImageFont

from lucid_yolo.viz.draw import class_color, draw_boxes, side_by_side
from lucid_yolo.viz.fonts import default_font_path, drawable_text

GREY = np.full((120, 160, 3), 128, dtype=np.uint8)
NAMES = ["person", "собака", "Fußgänger"]


def draw(image: np.ndarray, boxes: list[list[float]], names: list[str] = NAMES, label: int = 0) -> np.ndarray:
    return draw_boxes(image, np.array(boxes, dtype=np.float64).reshape(-1, 4), np.full(len(boxes), label), names)


@pytest.mark.parametrize("level", [0, 128, 255], ids=["black", "grey", "white"])
def test_outline_has_the_class_color_and_contrast(level: int) -> None:
    drawn = draw(np.full_like(GREY, level), [[30, 40, 130, 110]])
    assert tuple(drawn[75, 30]) == class_color(0)
    column = drawn[75, 28:33].astype(int).sum(axis=1)
    assert np.ptp(column) > 150


def test_source_is_untouched_and_drawing_repeats() -> None:
    image = GREY.copy()
    first = draw(image, [[30, 40, 130, 110]])
    assert (image == GREY).all()
    assert (first == draw(image, [[30, 40, 130, 110]])).all()
    assert first.flags.writeable


def test_remarks_are_written_behind_the_name() -> None:
    boxes, labels = np.array([[10.0, 40.0, 150.0, 110.0], [80.0, 70.0, 140.0, 100.0]]), np.zeros(2, np.int64)
    plain, empty, one = (
        draw_boxes(GREY, boxes, labels, NAMES, remarks=remarks) for remarks in (None, ["", ""], ["missed", ""])
    )
    assert (plain == empty).all()
    rows, columns = np.nonzero((plain != one).any(axis=2))
    assert len(rows)
    assert rows.max() < 42  # the tag of the first box, above it
    assert columns.max() > 50
    with pytest.raises(ValueError, match="remarks: expected 2 as of labels, found 1"):
        draw_boxes(GREY, boxes, labels, NAMES, remarks=["missed"])


def test_colors_are_distinct() -> None:
    assert len({class_color(k) for k in range(200)}) == 200


@pytest.mark.parametrize(
    "box",
    [[-50, -50, 500, 500], [0, 0, 1e9, 1e9], [159, 119, 160, 120], [20, 20, 20, 20], [90, 60, 30, 20]],
    ids=["larger than the picture", "huge", "corner", "no size", "inverted"],
)
def test_box_is_drawn_inside(box: list[float]) -> None:
    drawn = draw(GREY, [box])
    assert drawn.shape == GREY.shape
    assert (drawn == class_color(0)).all(axis=-1).any()


def test_box_outside_is_not_drawn() -> None:
    assert (draw(GREY, [[200, 0, 300, 50], [-90, -90, -10, -10]]) == GREY).all()


@pytest.mark.parametrize("size", [(1, 1), (3, 200), (200, 3), (16, 16), (0, 5)])
def test_any_picture_size(size: tuple[int, int]) -> None:
    assert draw(np.zeros((*size, 3), dtype=np.uint8), [[0, 0, 3, 3]], ["w" * 99]).shape == (*size, 3)


def test_tag_of_a_box_at_the_top_is_inside_the_picture() -> None:
    drawn = draw(GREY, [[0, 0, 159, 119]])
    filled = (drawn[:24, :70] == class_color(0)).all(axis=-1).sum()
    assert filled > 300


def test_tags_do_not_hide_each_other() -> None:
    boxes = np.array([[40.0, 50, 60, 70], [42, 52, 62, 72]])
    drawn = draw_boxes(GREY, boxes, np.array([0, 1]), ["a", "b"])
    alone = [draw_boxes(GREY, boxes[i : i + 1], np.array([i]), ["a", "b"]) for i in range(2)]
    for i in range(2):
        fill = [(picture == class_color(i)).all(axis=-1).sum() for picture in (drawn, alone[i])]
        assert fill[0] > 0.8 * fill[1]


@pytest.mark.parametrize("text", ["собака", "Καλημέρα", "Fußgänger", "قطة"])
def test_shipped_font_has_the_glyphs(text: str) -> None:
    found, path = drawable_text(text, "#0")
    assert (found, path) == (text, default_font_path())
    font = ImageFont.truetype(path, 20)
    missing = bytes(font.getmask("\U000fffff"))
    assert all(bytes(font.getmask(c)) != missing for c in text)


def test_text_without_glyphs_becomes_the_index() -> None:
    assert drawable_text("\U000fffff", "#7") == ("#7", default_font_path())


def test_line_breaks_become_blanks() -> None:
    assert drawable_text("a\n\tb", "#0")[0] == "a b"


@pytest.mark.parametrize(
    ("image", "boxes", "labels", "scores", "message"),
    [
        (GREY.astype(np.float32), np.zeros((1, 4)), np.zeros(1, int), None, "uint8"),
        (GREY[..., 0], np.zeros((1, 4)), np.zeros(1, int), None, "uint8"),
        (GREY, np.zeros((1, 4)), np.zeros(2, int), None, r"expected shape \(2, 4\)"),
        (GREY, np.zeros((1, 4)), np.zeros(1, int), np.zeros(3), "expected 1"),
        (GREY, np.full((1, 4), np.nan), np.zeros(1, int), None, "NaN"),
        (GREY, np.zeros((1, 4)), np.full(1, 9), None, "label 9"),
    ],
    ids=["float image", "two axes", "labels", "scores", "nan", "no name"],
)
def test_refuses(image: np.ndarray, boxes: np.ndarray, labels: np.ndarray, scores: np.ndarray, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        draw_boxes(image, boxes, labels, NAMES, scores)


def test_ids_choose_the_color_and_are_written() -> None:
    boxes, labels = np.array([[30.0, 40, 130, 110]]), np.array([0])
    plain = draw_boxes(GREY, boxes, labels, NAMES)
    drawn = draw_boxes(GREY, boxes, labels, NAMES, ids=np.array([5]))
    assert tuple(drawn[75, 30]) == class_color(5)
    assert tuple(plain[75, 30]) == class_color(0)
    same_color = draw_boxes(GREY, boxes, labels, NAMES, ids=np.array([0]))
    assert (same_color != plain).any()
    without = [draw_boxes(GREY, boxes, labels, NAMES, ids=ids, has_names=False) for ids in (None, np.array([0]))]
    assert (without[0] == without[1]).all()
    assert (without[0][:40] != plain[:40]).any()
    with pytest.raises(ValueError, match="ids: expected 1"):
        draw_boxes(GREY, boxes, labels, NAMES, ids=np.array([1, 2]))


def test_line_width_is_that_of_the_outline() -> None:
    boxes = np.array([[30.0, 20, 130, 110]])
    drawn = draw_boxes(GREY, boxes, np.array([0]), NAMES, has_names=False, line_width=6)
    assert (drawn[75, 20:60] == class_color(0)).all(axis=-1).sum() == 6


def test_side_by_side_keeps_both_pictures() -> None:
    left, right = np.full((4, 3, 3), 10, np.uint8), np.full((4, 5, 3), 20, np.uint8)
    whole = side_by_side(left, right, 2)
    assert whole.shape == (4, 10, 3)
    assert (whole[:, :3] == left).all()
    assert (whole[:, 3:5] == 255).all()
    assert (whole[:, 5:] == right).all()
