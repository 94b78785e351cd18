"""Objects followed through a video: detections of every frame, joined by a tracker of the library ``trackers``."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, Protocol, runtime_checkable

import numpy as np

from lucid_yolo.predict.results import Results

TRACKERS = {
    "bytetrack": "ByteTrackTracker",
    "ocsort": "OCSORTTracker",
    "botsort": "BoTSORTTracker",
    "sort": "SORTTracker",
}
LOW_CONF = 0.1
"""Weaker detections than ``conf`` down to this one may continue a track, though not begin one."""


@runtime_checkable
class Tracker(Protocol):
    """What a tracker of the library can do: give each detection an id, -1 where it has none yet."""

    def update(self, detections: Any, frame: Any = None, timestamp: float | None = None) -> Any:
        """Take the detections of the next frame; return them with ``tracker_id``."""

    def reset(self) -> None:
        """Forget every track."""


def make_tracker(name: str, conf: float) -> Tracker:
    """Return a tracker of the library, set up for a confidence.

    Args:
        name: One of :data:`TRACKERS`.
        conf: Least confidence of a detection that begins a track.

    Raises:
        ImportError: The library is not installed.
        ValueError: Unknown name.
    """
    if name not in TRACKERS:
        raise ValueError(f"tracker: expected one of {', '.join(TRACKERS)}, or a tracker, found {name!r}")
    try:
        library = importlib.import_module("trackers")
    except ImportError as error:
        raise ImportError(
            "track needs the package trackers: install it with this package's extra `track`, pip install -e '.[track]'"
        ) from error
    kind = getattr(library, TRACKERS[name])
    known = inspect.signature(kind).parameters
    thresholds = {"track_activation_threshold": conf, "high_conf_det_threshold": conf}
    made: Tracker = kind(**{key: value for key, value in thresholds.items() if key in known})
    return made


def join(results: Iterable[Results], tracker: Tracker) -> Iterator[Results]:
    """Yield each frame's tracked objects with their ids; detections that belong to no track are left out.

    Ids count from 1 and begin anew with every video. A track is told from its second frame on.

    Args:
        results: Results in the order of time: of videos, or of pictures that are the frames of one.
        tracker: Keeps the tracks; it is reset first.
    """
    tracker.reset()
    takes_frame = bool(getattr(tracker, "enable_cmc", False))
    last: Results | None = None
    for result in results:
        if last is not None and not _follows(result, last):
            tracker.reset()
        last = result
        detections = result.to_supervision()
        detections.data["row"] = np.arange(len(result))
        bgr = result.orig_img[:, :, ::-1] if takes_frame and result.orig_img is not None else None
        tracked = tracker.update(detections, frame=bgr, timestamp=result.timestamp_s)
        yield _with_ids(result, tracked)


def _follows(result: Results, last: Results) -> bool:
    """Return whether a result is later in the same video, or both are pictures."""
    if result.frame_index is None or last.frame_index is None:
        return result.frame_index is None and last.frame_index is None
    return result.path == last.path and result.frame_index > last.frame_index


def _with_ids(result: Results, tracked: Any) -> Results:
    """Return the objects that have an id, in the order of the result."""
    ids = np.full(len(result), -1, dtype=np.int64)
    if len(tracked):
        ids[tracked.data["row"]] = tracked.tracker_id
    has_id = ids >= 0
    kept = result[has_id]
    return replace(kept, boxes=kept.boxes.with_ids(ids[has_id] + 1))
