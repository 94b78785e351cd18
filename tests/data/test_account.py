import json

import pytest

from lucid_yolo.data.account import AccountBuilder, RowAccount, merge_accounts


def build(num_kept: int = 0, num_dropped: int = 0, num_labelled: int = 1) -> RowAccount:
    tally = AccountBuilder(num_kept=num_kept, num_images=2, num_labelled_images=num_labelled)
    for line in range(num_dropped):
        tally.drop(f"a.txt:{line}", "empty box", "found width 0")
    return tally.freeze()


def test_every_row_is_in_one_bin_and_has_a_place() -> None:
    tally = AccountBuilder()
    tally.keep()
    tally.clip("a.txt:2", "x -0.01..0.5")
    tally.drop("a.txt:3", "not finite", "found nan")
    tally.ignore("b.json:annotations[0]", "iscrowd")
    account = tally.freeze()
    assert account.counts == {"kept": 1, "clipped": 1, "dropped": 1, "ignored": 1}
    assert account.num_rows == sum(account.counts.values())
    entries = json.loads(json.dumps(account.to_dict()))["entries"]
    assert [entry["where"] for entry in entries] == ["a.txt:2", "a.txt:3", "b.json:annotations[0]"]


def test_table_shows_shares_reasons_and_first_places() -> None:
    table = build(num_kept=3, num_dropped=1).to_table()
    assert "75.00 %" in table
    assert "25.00 %" in table
    assert "empty box" in table
    assert "a.txt:0" in table


@pytest.mark.parametrize(
    ("account", "fraction", "message", "reason"),
    [
        (build(99, 1), 0.01, None, "exactly the allowed share"),
        (build(98, 2), 0.01, "2 of 100 rows were dropped", "more than the allowed share"),
        (build(98, 2), 0.02, None, "the share can be set"),
        (build(0, 0, num_labelled=0), 1.0, "at least one image with an object", "nothing to learn from"),
    ],
)
def test_check(account: RowAccount, fraction: float, message: str | None, reason: str) -> None:
    if message is None:
        account.check(fraction)
        return
    with pytest.raises(ValueError, match=message) as caught:
        account.check(fraction)
    assert account.to_table() in str(caught.value), reason


def test_merge_adds_everything_and_keeps_order() -> None:
    one, other = AccountBuilder(num_kept=1), AccountBuilder(num_kept=2)
    for tally, name in ((one, "a"), (other, "b")):
        tally.note("image kind JPEG RGB", name, count=3)
        tally.drop(f"{name}.txt:1", "empty box")
        tally.leave_out(f"{name}.jpg", "no such file")
    merged = one.freeze().merge(other.freeze())
    assert merged == merge_accounts([one.freeze(), other.freeze()])
    assert merged.num_rows == 5
    assert [entry.where for entry in merged.entries] == ["a.txt:1", "b.txt:1"]
    assert [item.path for item in merged.left_out] == ["a.jpg", "b.jpg"]
    assert merged.notes[0].count == 6
    assert merged.notes[0].examples == ("a", "b")
