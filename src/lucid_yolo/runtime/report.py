"""The report page of an evaluation: what it shows, in which order. Drawing and writing are :mod:`lucid_yolo.viz`'s."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from lucid_yolo.data.account import BINS, RowAccount
from lucid_yolo.data.dataset import DataSplit
from lucid_yolo.evaluate.confusion import CONFIDENCE, IOU_THRESHOLD, most_confused
from lucid_yolo.evaluate.curves import ConfidenceCurves
from lucid_yolo.models.head import DENSE, DEPLOYED
from lucid_yolo.runtime.checkpoint_file import ModelMeta
from lucid_yolo.runtime.environment import environment
from lucid_yolo.runtime.evaluation import Evaluation
from lucid_yolo.runtime.evaluation_extras import EvaluationExtras
from lucid_yolo.runtime.evaluation_plots import EvaluationPlots, plot_evaluation
from lucid_yolo.runtime.metric_names import HEADS, ROWS
from lucid_yolo.runtime.report_pictures import draw_matches, worst_and_best
from lucid_yolo.viz.labels import plot_labels
from lucid_yolo.viz.matrix import MAX_COUNTED
from lucid_yolo.viz.report import Card, Cell, Drawing, Report, Section, Table, write_report

MAX_EXAMPLES = 20


def write_evaluation_report(
    path: Path,
    evaluation: Evaluation,
    split: DataSplit,
    meta: ModelMeta,
    facts: Mapping[str, Any],
    device: str,
    extras: EvaluationExtras | None = None,
    plots: EvaluationPlots | None = None,
) -> None:
    """Write the page of one evaluation.

    Args:
        path: HTML file.
        evaluation: Metrics and detections.
        split: The evaluated images.
        meta: What the network is.
        facts: Where the numbers come from; shown as they are.
        device: The device it ran on.
        extras: Further numbers.
        plots: Plots of the evaluation, where they have been made.
    """
    network = f"{meta.task} {meta.variant}, {meta.image_size_px} px"
    title = f"{split.root.name}: {meta.task} {meta.variant}"
    labels = labels_section(
        {str(facts.get("split", "")): split.account}, plot_labels(split.records, split.class_map.names)
    )
    written = datetime.now().astimezone().isoformat(" ", "seconds")
    last = facts_section({"written": written, "network": network, **facts}, device, "")
    sections = (*evaluation_sections(evaluation, split, extras, plots), labels, last)
    subtitle = ", ".join(str(facts[key]) for key in ("ckpt_path", "data_root", "split") if facts.get(key))
    write_report(Report(title, subtitle, headline_cards(evaluation, extras), sections), path)


def headline_cards(evaluation: Evaluation, extras: EvaluationExtras | None = None) -> tuple[Card, ...]:
    """Return the numbers to see first.

    Args:
        evaluation: Metrics of both heads.
        extras: Further numbers.
    """
    intervals = extras.intervals.get(DEPLOYED, {}) if extras is not None else {}
    ranges = {name: f"95 % {_text(i.low)} to {_text(i.high)}" for name, i in intervals.items()}
    deployed, dense = evaluation.metrics[DEPLOYED], evaluation.metrics.get(DENSE)
    difference = math.nan if dense is None else deployed.map - dense.map
    note = "" if math.isnan(difference) else f"{difference:+.4f} against the head with NMS"
    return (
        Card(ROWS["map"], _text(deployed.map), ". ".join(filter(None, (ranges.get("map"), note)))),
        Card(ROWS["map50"], _text(deployed.map50), ranges.get("map50", "")),
        Card("images", f"{deployed.num_images:,}"),
        Card("objects", f"{deployed.num_objects:,}", f"of {len(deployed.per_class)} classes"),
    )


def evaluation_sections(
    evaluation: Evaluation,
    split: DataSplit,
    extras: EvaluationExtras | None = None,
    plots: EvaluationPlots | None = None,
) -> tuple[Section, ...]:
    """Return metrics, curves, classes, confusion and pictures of an evaluation.

    Args:
        evaluation: Metrics and detections of both heads.
        split: The evaluated images.
        extras: Further numbers.
        plots: Its plots, where they have been made.
    """
    names, plots = split.class_map.names, plots or plot_evaluation(evaluation, split)
    worst, best = worst_and_best(plots.matches)
    explained = (
        f"By F1 at confidence {CONFIDENCE} and IoU {IOU_THRESHOLD}. First the objects, then the detections; words "
        "behind a name say what is wrong."
    )
    pictures = [
        Section(title, explained, pictures=draw_matches(chosen, names))
        for title, chosen in (("Worst pictures", worst), ("Best pictures", best))
        if chosen
    ]
    return (
        _metrics_section(evaluation, extras),
        _curves_section(plots),
        _classes_section(evaluation, plots.curves),
        _confusion_section(plots, names),
        *pictures,
    )


def labels_section(accounts: Mapping[str, RowAccount], labels: Figure) -> Section:
    """Return what became of every label row, and the statistics of the labels.

    Args:
        accounts: Name of a split to its account.
        labels: Plot of the labels.
    """
    bins = [[account.num_rows, *account.counts.values(), account.num_images] for account in accounts.values()]
    columns = ("split", "label rows", *BINS, "images")
    tables = [Table(columns, tuple((name, *row) for name, row in zip(accounts, bins, strict=True)))]
    reasons = [
        (name, row_bin, reason, count, _first_place(account, row_bin, reason))
        for name, account in accounts.items()
        for row_bin in BINS[1:]
        for reason, count in account.reasons(row_bin).items()
    ]
    if reasons:
        tables.append(Table(("split", "rows were", "because", "rows", "first"), tuple(reasons)))
    notes: list[tuple[Cell, ...]] = []
    for name, account in accounts.items():
        notes += [(name, f"image left out: {item.reason}", 1, item.path) for item in account.left_out[:MAX_EXAMPLES]]
        notes += [(name, note.kind, note.count, ", ".join(note.examples[:1])) for note in account.notes]
    if notes:
        tables.append(Table(("split", "remark", "count", "first"), tuple(notes)))
    drawing = Drawing(labels, "Ignored regions are left out.")
    return Section("Labels", tables=tuple(tables), drawings=(drawing,))


def facts_section(facts: Mapping[str, Any], device: str, configuration: str) -> Section:
    """Return where the numbers come from: checkpoint, data, machine, versions, commit, configuration.

    Args:
        facts: Name to value.
        device: The device it ran on.
        configuration: The complete one, as YAML; empty for none.
    """
    rows = {**facts, **environment(device)}
    table = Table((), tuple((name, str(value)) for name, value in rows.items()))
    details = {"Complete configuration": configuration} if configuration else {}
    return Section("Configuration and versions", tables=(table,), details=details)


def _metrics_section(evaluation: Evaluation, extras: EvaluationExtras | None) -> Section:
    heads = evaluation.to_dict()
    rows = []
    for name, label in ROWS.items():
        a, b = heads[DEPLOYED][name], heads[DENSE][name] if DENSE in heads else None
        rows.append((label.format(**heads[DEPLOYED]), a, b, _difference(a, b)))
    columns = ("COCO metric", *(" ".join(head.split()) for head in HEADS.values()), "difference")
    cut = evaluation.metrics[DEPLOYED].num_cut_objects
    most = evaluation.metrics[DEPLOYED].max_detections
    text = f"Both heads on the same images, in source pixels, with up to {most} detections per image and class."
    text += f" {cut} objects lie beyond that number and cannot be found." if cut else ""
    return Section(
        "Metrics", text, (Table(columns, tuple(rows)), *(_extra_tables(extras) if extras is not None else ()))
    )


def _extra_tables(extras: EvaluationExtras) -> list[Table]:
    """Return the tables of intervals and of size buckets, as far as there are any."""
    tables, heads = list[Table](), {name: " ".join(HEADS[name].split()) for name in HEADS}
    if extras.intervals:
        sides = {**{heads[name]: extras.intervals[name] for name in extras.intervals}, "difference": extras.difference}
        rows = [
            (side, ROWS[metric], *(_defined(v) for v in (interval.value, interval.low, interval.high)))
            for side, found in sides.items()
            for metric, interval in found.items()
        ]
        title = f"95 % intervals, {extras.num_draws} draws of images"
        tables.append(Table(("head", "metric", "value", "from", "to"), tuple(rows), title))
    for name, buckets in extras.size_buckets.items():
        cells = tuple((b.name, b.num_objects, *map(_defined, (b.ap, b.ap50, b.ar))) for b in buckets)
        title = f"By size, side of a square in source pixels: {heads[name]}"
        tables.append(Table(("size", "objects", "AP 0.50:0.95", "AP 0.50", "AR"), cells, title))
    return tables


def _curves_section(plots: EvaluationPlots) -> Section:
    best = plots.curves.best_confidence
    caption = "" if math.isnan(best) else f"Mean F1 is best at confidence {best:.3f}."
    drawings = (Drawing(plots.precision_recall), Drawing(plots.confidence, caption))
    return Section("Curves", "The deployed head at IoU 0.50.", drawings=drawings)


def _classes_section(evaluation: Evaluation, curves: ConfidenceCurves) -> Section:
    rows: list[tuple[Cell, ...]] = []
    has_best = not math.isnan(curves.best_confidence)
    point = int(curves.confidence.searchsorted(curves.best_confidence)) if has_best else 0
    dense = evaluation.metrics.get(DENSE)
    for k, row in enumerate(evaluation.metrics[DEPLOYED].per_class):
        dense_ap = math.nan if dense is None else dense.per_class[k].ap
        at_best = [_defined(float(curve[k, point])) for curve in (curves.precision, curves.recall, curves.f1)]
        numbers = (_defined(row.ap), _defined(dense_ap), _defined(row.ap - dense_ap), _defined(row.ap50))
        rows.append((row.name, row.num_images, row.num_objects, *numbers, *at_best))
    columns = ("class", "images", "objects", "AP", "AP + NMS", "difference", "AP 0.50", "precision", "recall", "F1")
    text = "A click on a heading sorts."
    if has_best:
        text += f" Precision, recall and F1 at confidence {curves.best_confidence:.3f}, where their mean F1 is best."
    return Section("Classes", text, (Table(columns, tuple(rows), is_sortable=True),))


def _confusion_section(plots: EvaluationPlots, names: Sequence[str]) -> Section:
    counts = plots.counts
    objects, found = int(counts[:-1].sum()), int(counts[:, :-1].sum())
    right, missed = int(counts[:-1, :-1].trace()), int(counts[:-1, -1].sum())
    text = (
        f"Detections of confidence {CONFIDENCE} or more, matched at IoU {IOU_THRESHOLD} whatever their class. Of "
        f"{objects:,} objects {right:,} were found as what they are, {missed:,} missed, the others taken for another "
        f"class. Of {found:,} detections {int(counts[-1].sum()):,} lie on no object."
    )
    drawing = Drawing(plots.confusion, may_shrink=len(names) < MAX_COUNTED)
    pairs = tuple((names[i], names[j], n, n / int(counts[i].sum())) for i, j, n in most_confused(counts))
    columns = ("true", "detected as", "times", "share of the class")
    tables = (Table(columns, pairs, "Most frequent mistakes between classes"),) if pairs else ()
    return Section("Confusion", text, tables, (drawing,))


def _first_place(account: RowAccount, row_bin: str, reason: str) -> str:
    entry = next(e for e in account.entries if e.bin == row_bin and e.reason == reason)
    return f"{entry.where} {entry.detail}".strip()


def _defined(value: float) -> float | None:
    return None if math.isnan(value) else value


def _difference(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else a - b


def _text(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.4f}"
