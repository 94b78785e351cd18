"""Scoring the detections of one head, in this process or in a second one beside it."""

from __future__ import annotations

import contextlib
import logging
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from multiprocessing.connection import Connection
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from lucid_yolo.data.host import usable_cores
from lucid_yolo.data.worker_server import worker_context
from lucid_yolo.decode.one_to_one import MAX_DETECTIONS
from lucid_yolo.evaluate.coco import BoxMetrics, ImageDetections, evaluate_boxes
from lucid_yolo.structures import ClassMap, ImageRecord

MIN_BESIDE = 1 << 15
"""Detections of a head from which on a second process pays: there an epoch saves what the start costs."""
WAIT_S = 60.0

_log = logging.getLogger(__name__)

Result = TypeVar("Result")


def seen_records(records: Sequence[ImageRecord], detections: Sequence[ImageDetections]) -> list[ImageRecord]:
    """Return the images that have a row of detections, be it empty, in their order.

    Args:
        records: Images of a split.
        detections: One row per image that was run.
    """
    seen = {row.image_id for row in detections}
    return [record for record in records if record.image_id in seen]


def score_branch(
    branch: str, records: Sequence[ImageRecord], detections: Sequence[ImageDetections], class_map: ClassMap
) -> BoxMetrics:
    """Return the metrics of one branch; images that were not run do not count, and a warning says so.

    Args:
        branch: Name for the warning.
        records: Images of a split.
        detections: One row per image that was run.
        class_map: The classes.
    """
    seen = seen_records(records, detections)
    if len(seen) < len(records):
        _log.warning("%s: scored on %d of %d images", branch, len(seen), len(records))
    return evaluate_boxes(seen, detections, class_map, MAX_DETECTIONS)


def pays_beside(num_images: int) -> bool:
    """Return whether a second process can save time over the epochs of a run.

    Args:
        num_images: Images of the split.
    """
    return num_images * MAX_DETECTIONS >= MIN_BESIDE and usable_cores() > 1


class ScoringProcess:
    """A process that scores one branch while this one scores the other, kept over the epochs of a run.

    It saves time and decides nothing: where it cannot start, is not ready yet or dies, it has no answer. That it is
    gone is said once in the log.

    Args:
        records: Images of the split.
        class_map: The classes.
    """

    def __init__(self, records: Sequence[ImageRecord], class_map: ClassMap) -> None:
        context: Any = worker_context()
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs,), name="scoring", daemon=True)
        self._records, self._class_map = records, class_map
        self._is_ready = self._is_asked = self._is_closed = False
        self._unless_gone(self._process.start)
        theirs.close()

    def ask(self, branch: str, detections: Sequence[ImageDetections]) -> bool:
        """Begin to score; return whether :meth:`answer` is to be called.

        Args:
            branch: Its name.
            detections: One row per image that was run.
        """
        if self._is_asked:  # nobody took the answer, so the next one would be the wrong one
            self.close()
        if self._is_closed or sum(len(row.score) for row in detections) < MIN_BESIDE:
            return False
        self._is_asked = bool(self._unless_gone(partial(self._send, branch, detections)))
        return self._is_asked

    def answer(self) -> BoxMetrics | None:
        """Return the metrics and log what the scoring had to say; None if the process is gone."""
        self._is_asked = False
        return self._unless_gone(self._receive)

    def close(self) -> None:
        """End the process."""
        if self._is_closed:
            return
        self._is_closed = True
        self._connection.close()
        if self._process.pid is not None:
            self._process.kill()
            self._process.join()

    def _send(self, branch: str, detections: Sequence[ImageDetections]) -> bool:
        if not self._is_ready and self._connection.poll():
            # Not sooner: until the process has imported what it needs, it would not read, and this one would wait.
            self._is_ready = self._connection.recv()
            self._connection.send(([replace(record, polygons=None) for record in self._records], self._class_map))
        if self._is_ready:
            self._connection.send((branch, _Columns.of(detections)))
        return self._is_ready

    def _receive(self) -> BoxMetrics:
        if not self._connection.poll(WAIT_S):
            raise TimeoutError(f"no answer within {WAIT_S:g} s")
        metrics: BoxMetrics
        metrics, said = self._connection.recv()
        for record in said:
            logging.getLogger(record.name).handle(record)
        return metrics

    def _unless_gone(self, talk: Callable[[], Result]) -> Result | None:
        try:
            return talk()
        except (OSError, EOFError) as error:
            _log.warning("the process that scores beside this one is gone, all is scored in this one: %r", error)
            self.close()
            return None


@dataclass(frozen=True)
class _Columns:
    """Detections of many images in few arrays, which travel faster.

    Attributes:
        image_id: Of every image.
        ends: Row after the last of every image.
        columns: What :class:`ImageDetections` holds, of all images.
    """

    image_id: list[int | str]
    ends: list[int]
    columns: list[NDArray[Any]]

    @classmethod
    def of(cls, detections: Sequence[ImageDetections]) -> _Columns:
        ends = np.cumsum([len(row.score) for row in detections]).tolist()
        names = ("boxes_xyxy_src", "score", "label")
        columns = [np.concatenate([getattr(row, name) for row in detections]) for name in names]
        return cls([row.image_id for row in detections], ends, columns)

    def rows(self) -> list[ImageDetections]:
        return [
            ImageDetections(image_id, *(column[start:end] for column in self.columns))
            for image_id, (start, end) in zip(self.image_id, pairwise([0, *self.ends]), strict=True)
        ]


class _Said(logging.Handler):
    """Keeps what was logged."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


def _serve(connection: Connection[Any, Any]) -> None:
    """Score what arrives until the other side is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupted run ends this process itself
    with contextlib.suppress(EOFError, OSError):
        connection.send(True)
        records, class_map = connection.recv()
        while True:
            connection.send(_score_next(connection, records, class_map))


def _score_next(
    connection: Connection[Any, Any], records: list[ImageRecord], class_map: ClassMap
) -> tuple[BoxMetrics, list[logging.LogRecord]]:
    branch, columns = connection.recv()
    said = _Said()
    logging.getLogger().handlers = [said]
    return score_branch(branch, records, columns.rows(), class_map), said.records
