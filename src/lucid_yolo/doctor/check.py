"""Everything about a data set that a run should not discover by itself.

Errors are what makes a run refuse to start or silently lose data: a split or the class names that cannot be read, more
dropped rows than allowed, a training split without objects, images that cannot be used. All else is a warning.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from lucid_yolo.data.dataset import DataSplit, SourceFormat, list_splits, open_split
from lucid_yolo.data.readers.layout import Split
from lucid_yolo.doctor.scan import ImageScan, find_equal, find_near, find_repeated, scan_images
from lucid_yolo.doctor.summary import SplitSummary, summarize

_MAX_EXAMPLES = 5
_SIZE_WORDS = ("size", "EXIF")


@dataclass(frozen=True)
class Finding:
    """One kind of fault.

    Attributes:
        level: ``"error"`` or ``"warning"``.
        kind: What is wrong.
        count: How often.
        examples: The first few places.
    """

    level: Literal["error", "warning"]
    kind: str
    count: int
    examples: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {**vars(self), "examples": list(self.examples)}


@dataclass(frozen=True)
class CheckReport:
    """What was found.

    Attributes:
        data_root: As given.
        findings: Errors first.
        summaries: One per split that could be read.
        splits: The splits themselves.
    """

    data_root: str
    findings: tuple[Finding, ...]
    summaries: tuple[SplitSummary, ...]
    splits: dict[str, DataSplit]

    @property
    def num_errors(self) -> int:
        """Kinds of errors."""
        return sum(finding.level == "error" for finding in self.findings)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        accounts = {name: split.account.to_dict() for name, split in self.splits.items()}
        return {
            "data_root": self.data_root,
            "is_clean": not self.findings,
            "num_errors": self.num_errors,
            "findings": [finding.to_dict() for finding in self.findings],
            "splits": {s.split: {**s.to_dict(), "account": accounts[s.split]} for s in self.summaries},
        }

    def to_table(self) -> str:
        """Return the accounts, the summaries and the findings as text."""
        lines = [self.data_root]
        for summary in self.summaries:
            lines += ["", summary.to_table(), self.splits[summary.split].account.to_table()]
        lines += ["", "no findings" if not self.findings else "findings"]
        for finding in self.findings:
            lines.append(f"  {finding.level.upper()}: {finding.kind}: {finding.count}")
            lines += [f"    {example}" for example in finding.examples]
        return "\n".join(lines)


def check(
    data_root: str | Path,
    split_names: Sequence[Split] | None = None,
    source_format: SourceFormat = "auto",
    image_size_px: int = 640,
    max_dropped_fraction: float = 0.01,
) -> CheckReport:
    """Read and decode a data set and report on it.

    Args:
        data_root: A folder, or a data YAML.
        split_names: Which splits; None for all there are.
        source_format: Format of the labels; ``"auto"`` looks.
        image_size_px: Network input that object sizes are given in.
        max_dropped_fraction: Largest share of dropped rows that is no error, in [0, 1].

    Raises:
        FileNotFoundError: ``data_root`` does not exist.
    """
    findings: list[Finding] = []
    splits: dict[str, DataSplit] = {}
    names = list_splits(data_root, source_format) if split_names is None else tuple(split_names)
    if not names:
        findings.append(Finding("error", "no split found: expected folders or a YAML entry for train, val or test", 1))
    for wanted in names:
        try:
            splits[wanted] = open_split(data_root, wanted, source_format)
        except ValueError as error:
            findings.append(Finding("error", f"split {wanted} cannot be read", 1, (str(error),)))
    scans = {name: scan_images(split.records) for name, split in splits.items()}
    for name, split in splits.items():
        findings += _check_rows(name, split, max_dropped_fraction)
        findings += _check_images(name, split, scans[name])
    findings += _check_between(scans)
    findings.sort(key=lambda finding: finding.level != "error")
    summaries = tuple(summarize(name, split, image_size_px) for name, split in splits.items())
    return CheckReport(str(data_root), tuple(findings), summaries, splits)


def _check_rows(name: str, split: DataSplit, max_dropped_fraction: float) -> list[Finding]:
    account, findings = split.account, []
    is_over = account.counts["dropped"] > max_dropped_fraction * account.num_rows
    for reason, count in account.reasons("dropped").items():
        entries = [e for e in account.entries if (e.bin, e.reason) == ("dropped", reason)][:_MAX_EXAMPLES]
        places = tuple(f"{entry.where} {entry.detail}".rstrip() for entry in entries)
        findings.append(Finding("error" if is_over else "warning", f"{name}: rows dropped, {reason}", count, places))
    clipped = [f"{e.where} {e.detail}" for e in account.entries if e.bin == "clipped"]
    if clipped:
        findings.append(_finding("warning", f"{name}: boxes clipped to the image", clipped))
    if name == "train" and account.num_labelled_images == 0:
        findings.append(Finding("error", "train: no image has an object", 1))
    for note in account.notes:
        is_repeated = note.kind.startswith(("row repeated", "annotation repeated", "object repeated"))
        is_size = any(word in note.kind for word in _SIZE_WORDS)
        is_other = any(word in note.kind for word in ("without a label", "shared by", "listed twice", "several files"))
        if is_repeated or is_size or is_other:
            findings.append(Finding("warning", f"{name}: {note.kind}", note.count, note.examples))
    return findings


def _check_images(name: str, split: DataSplit, scans: Sequence[ImageScan]) -> list[Finding]:
    left_out = [f"{item.path}: {item.reason}" for item in split.account.left_out]
    left_out += [f"{scan.path}: {scan.fault}" for scan in scans if scan.fault]
    by_kind = {
        f"{name}: images truncated, the decodable part is used": [s.path for s in scans if s.is_truncated],
        f"{name}: images whose decoded size differs from the header": [s.path for s in scans if s.has_other_size],
        f"{name}: images with the pixels of another image of the split": [
            f"{path} = {first}" for path, first in find_repeated(scans)
        ],
    }
    labels = {label for record in split.records for label in record.labels[~record.is_ignored].tolist()}
    absent = [class_name for label, class_name in enumerate(split.class_map.names) if label not in labels]
    if split.account.num_labelled_images:
        by_kind[f"{name}: classes without an object"] = absent
    findings = [_finding("error", f"{name}: images that cannot be used", left_out)] if left_out else []
    return findings + [_finding("warning", kind, places) for kind, places in by_kind.items() if places]


def _check_between(scans: dict[str, list[ImageScan]]) -> list[Finding]:
    findings = []
    for one, other in itertools.combinations(scans, 2):
        equal = [f"{a} = {b}" for a, b in find_equal(scans[one], scans[other])]
        near = [f"{a} ~ {b}" for a, b in find_near(scans[one], scans[other])]
        if equal:
            findings.append(_finding("warning", f"same image in {one} and {other}", equal))
        if near:
            findings.append(_finding("warning", f"nearly the same image in {one} and {other}", near))
    return findings


def _finding(level: Literal["error", "warning"], kind: str, places: Sequence[str]) -> Finding:
    return Finding(level, kind, len(places), tuple(places[:_MAX_EXAMPLES]))
