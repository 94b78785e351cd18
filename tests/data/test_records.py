import pickle
from dataclasses import replace

import numpy as np
import pytest

from lucid_yolo.data.records import SharedRecords
from lucid_yolo.structures import ImageRecord, Polygons


def make(index: int, image_id: int | str, count: int) -> ImageRecord:
    rng = np.random.default_rng(index)
    boxes, labels, flags = rng.uniform(size=(count, 4)), rng.integers(0, 9, count), rng.uniform(size=count) < 0.5
    return ImageRecord(
        f"räume/ü{index}.png", image_id, 10 + index, 20, boxes, labels, flags, rng.uniform(size=count), 9
    )


RECORDS = [make(0, "a/ß", 3), make(1, 17, 0), make(2, "17", 5)]


def assert_equal(left: ImageRecord, right: ImageRecord) -> None:
    for name, value in vars(left).items():
        np.testing.assert_array_equal(getattr(right, name), value, err_msg=name)
        assert type(getattr(right, name)) is type(value), name


def test_records_come_back_unchanged() -> None:
    shared = SharedRecords(RECORDS)
    assert len(shared) == 3
    for index, record in enumerate(RECORDS):
        assert_equal(record, shared[index])
        assert_equal(record, shared[index - 3])
        assert shared.path(index) == record.path
        assert shared.size_src(index) == (record.height_src, record.width_src)
    for record, other in zip(RECORDS[1:], shared[1:], strict=True):
        assert_equal(record, other)
    with pytest.raises(IndexError):
        shared[3]


def test_no_records() -> None:
    assert list(SharedRecords([])) == []


def test_shared_records_are_not_shared_twice() -> None:
    shared = SharedRecords(RECORDS)
    assert SharedRecords.of(shared) is shared
    assert len(SharedRecords.of(RECORDS)) == 3


def test_a_pickle_keeps_the_values() -> None:
    shared = pickle.loads(pickle.dumps(SharedRecords(RECORDS)))
    for index, record in enumerate(RECORDS):
        assert_equal(record, shared[index])


def outlined(index: int, rings: list[int]) -> ImageRecord:
    """An image whose objects have so many rings each."""
    rng = np.random.default_rng(index)
    shapes = [[rng.uniform(0, 9, (3 + ring, 2)) for ring in range(count)] for count in rings]
    return replace(make(index, index, len(rings)), polygons=Polygons.pack(shapes))


def test_outlines_come_back_for_the_right_objects() -> None:
    records = [make(0, 0, 2), outlined(1, [1, 0, 3]), make(2, 2, 0), outlined(3, [0, 2]), make(4, 4, 1)]
    shared = pickle.loads(pickle.dumps(SharedRecords(records)))
    for record, other in zip(records, shared, strict=True):
        if record.polygons is None:
            assert other.polygons is None
            continue
        np.testing.assert_array_equal(other.polygons.has_rings, record.polygons.has_rings)
        for row in range(len(record.labels)):
            expected, found = record.polygons.rings(row), other.polygons.rings(row)
            assert len(found) == len(expected)
            for left, right in zip(expected, found, strict=True):
                np.testing.assert_array_equal(left, right)
