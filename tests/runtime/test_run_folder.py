from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from lucid_yolo.runtime.run_folder import next_run_folder


def test_numbers_go_on_from_the_highest(tmp_path: Path) -> None:
    root = tmp_path / "runs" / "detect"
    assert next_run_folder(root) == root / "1"
    (root / "10").mkdir()
    (root / "notes").mkdir()
    assert next_run_folder(root) == root / "11"


def test_no_two_runs_get_the_same_folder(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        folders = list(pool.map(next_run_folder, [tmp_path] * 40))
    assert len(set(folders)) == 40
