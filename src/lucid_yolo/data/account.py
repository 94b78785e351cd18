"""What became of every label row: each one ends in exactly one bin, and the bins sum to 100 %."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

RowBin = Literal["kept", "clipped", "dropped", "ignored"]
BINS: tuple[RowBin, ...] = ("kept", "clipped", "dropped", "ignored")

_MAX_EXAMPLES = 5


@dataclass(frozen=True)
class RowEntry:
    """A row that was not simply kept.

    Attributes:
        bin: ``"clipped"``, ``"dropped"`` or ``"ignored"``.
        reason: Short, the same for every row of its kind.
        where: ``file:line``, or ``file:annotations[index]`` in JSON.
        detail: What was found and what was expected.
    """

    bin: RowBin
    reason: str
    where: str
    detail: str = ""


@dataclass(frozen=True)
class LeftOut:
    """An image that cannot be used."""

    path: str
    reason: str


@dataclass(frozen=True)
class Note:
    """Something counted that costs no row, such as images without a label file.

    Attributes:
        kind: What was counted.
        count: How often.
        examples: The first few places.
    """

    kind: str
    count: int
    examples: tuple[str, ...] = ()


@dataclass(frozen=True)
class RowAccount:
    """Counts of rows and images of one or more splits, with a place for every row that was not simply kept.

    Attributes:
        num_kept: Rows used as written.
        entries: Every clipped, dropped and ignored row, in reading order.
        num_images: Images in the records.
        num_labelled_images: Images with at least one object.
        left_out: Every image that is not in the records.
        notes: Counted remarks, sorted by kind.
    """

    num_kept: int = 0
    entries: tuple[RowEntry, ...] = ()
    num_images: int = 0
    num_labelled_images: int = 0
    left_out: tuple[LeftOut, ...] = ()
    notes: tuple[Note, ...] = ()

    @property
    def counts(self) -> dict[RowBin, int]:
        """Rows per bin."""
        found = Counter(entry.bin for entry in self.entries)
        return {name: self.num_kept if name == "kept" else found[name] for name in BINS}

    @property
    def num_rows(self) -> int:
        """All rows of all label files."""
        return self.num_kept + len(self.entries)

    def merge(self, other: RowAccount) -> RowAccount:
        """Return the account of both, this one's entries first."""
        tally = AccountBuilder()
        for account in (self, other):
            tally.add(account)
        return tally.freeze()

    def reasons(self, row_bin: RowBin) -> dict[str, int]:
        """Return how many rows of ``row_bin`` have which reason, most frequent first."""
        found = Counter(entry.reason for entry in self.entries if entry.bin == row_bin)
        return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON, with every entry."""
        return {
            "rows": {"total": self.num_rows, **self.counts},
            "reasons": {name: self.reasons(name) for name in BINS[1:]},
            "images": {"total": self.num_images, "labelled": self.num_labelled_images, "left_out": len(self.left_out)},
            "left_out": [{"path": item.path, "reason": item.reason} for item in self.left_out],
            "notes": [{"kind": n.kind, "count": n.count, "examples": list(n.examples)} for n in self.notes],
            "entries": [{"bin": e.bin, "reason": e.reason, "where": e.where, "detail": e.detail} for e in self.entries],
        }

    def to_table(self) -> str:
        """Return a short text: bins with their share, reasons with a first place, images, notes."""
        lines = [f"label rows{self.num_rows:>20}   100.00 %"]
        for name, count in self.counts.items():
            lines.append(f"  {name:<18}{count:>10}   {100 * count / max(self.num_rows, 1):6.2f} %")
            for reason, number in self.reasons(name).items():
                first = next(e for e in self.entries if e.bin == name and e.reason == reason)
                lines.append(f"    {reason:<24}{number:>6}   first {first.where} {first.detail}".rstrip())
        lines.append(f"images{self.num_images:>24}   {self.num_labelled_images} with objects")
        if self.left_out:
            first_out = self.left_out[0]
            lines.append(f"  left out{len(self.left_out):>20}   first {first_out.path}: {first_out.reason}")
        for note in self.notes:
            first_place = f"   first {note.examples[0]}" if note.examples else ""
            lines.append(f"  note: {note.kind}: {note.count}{first_place}")
        return "\n".join(lines)

    def check(self, max_dropped_fraction: float = 0.01) -> None:
        """Refuse to train on a split that lost too much.

        Args:
            max_dropped_fraction: Largest share of rows that may have been dropped, in [0, 1].

        Raises:
            ValueError: More rows were dropped, or no image has an object; the message holds the table.
        """
        num_dropped = self.counts["dropped"]
        if num_dropped > max_dropped_fraction * self.num_rows:
            raise ValueError(
                f"labels: {num_dropped} of {self.num_rows} rows were dropped, more than the allowed "
                f"{100 * max_dropped_fraction:g} %; mend the files named below or raise max_dropped_fraction\n"
                f"{self.to_table()}"
            )
        if self.num_labelled_images == 0:
            raise ValueError(
                f"labels: expected at least one image with an object, found none in {self.num_images} images; "
                f"see below where labels were looked for\n{self.to_table()}"
            )


@dataclass
class AccountBuilder:
    """Collects what readers find; frozen into a :class:`RowAccount` at the end."""

    num_kept: int = 0
    num_images: int = 0
    num_labelled_images: int = 0
    entries: list[RowEntry] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)
    _note_counts: Counter[str] = field(default_factory=Counter)
    _note_examples: dict[str, list[str]] = field(default_factory=dict)

    def keep(self) -> None:
        """Count a row used as written."""
        self.num_kept += 1

    def clip(self, where: str, detail: str) -> None:
        """Enter a row that reached a little beyond the image."""
        self.entries.append(RowEntry("clipped", "beyond the border", where, detail))

    def drop(self, where: str, reason: str, detail: str = "") -> None:
        """Enter a row that is not used."""
        self.entries.append(RowEntry("dropped", reason, where, detail))

    def ignore(self, where: str, reason: str) -> None:
        """Enter a row that became an ignore region."""
        self.entries.append(RowEntry("ignored", reason, where))

    def leave_out(self, path: str, reason: str) -> None:
        """Enter an image that cannot be used."""
        self.left_out.append(LeftOut(path, reason))

    def note(self, kind: str, where: str = "", count: int = 1) -> None:
        """Count a remark; the first few places are remembered."""
        self._note_counts[kind] += count
        examples = self._note_examples.setdefault(kind, [])
        if where and len(examples) < _MAX_EXAMPLES:
            examples.append(where)

    def add(self, account: RowAccount) -> None:
        """Take over everything in ``account``."""
        self.num_kept += account.num_kept
        self.num_images += account.num_images
        self.num_labelled_images += account.num_labelled_images
        self.entries.extend(account.entries)
        self.left_out.extend(account.left_out)
        for note in account.notes:
            self.note(note.kind, count=note.count)
            self._note_examples[note.kind] = [*self._note_examples[note.kind], *note.examples][:_MAX_EXAMPLES]

    def freeze(self) -> RowAccount:
        """Return the finished account."""
        notes = tuple(
            Note(kind, self._note_counts[kind], tuple(self._note_examples[kind])) for kind in sorted(self._note_counts)
        )
        return RowAccount(
            self.num_kept,
            tuple(self.entries),
            self.num_images,
            self.num_labelled_images,
            tuple(self.left_out),
            notes,
        )


def merge_accounts(accounts: Iterable[RowAccount]) -> RowAccount:
    """Return one account of several splits or files, in their order."""
    tally = AccountBuilder()
    for account in accounts:
        tally.add(account)
    return tally.freeze()
