from __future__ import annotations

import json

import pytest

from lucid_yolo.cli.sizes import main


def test_json_holds_the_published_totals(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--variant", "n", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert list(report["variants"]) == ["n"]
    size = report["variants"]["n"]
    assert (size["train_parameters"], size["deploy_parameters"]) == (2_572_280, 2_408_932)
    assert size["conv_gflops"] == pytest.approx(5.357, abs=1e-3)
    assert size["total_gflops"] == pytest.approx(5.480, abs=1e-3)
    assert (report["task"], report["num_classes"], report["image_size_px"]) == ("detect", 80, 640)


def test_table_has_a_row_per_scale(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    text = capsys.readouterr().out
    for total in ("2,408,932", "9,496,140", "20,411,132", "24,807,420", "55,725,948"):
        assert total in text


def test_classes_and_image_size_count(capsys: pytest.CaptureFixture[str]) -> None:
    found = []
    for more in ([], ["--num_classes", "3"], ["--image_size", "320"]):
        assert main(["--variant", "n", "--json", *more]) == 0
        found.append(json.loads(capsys.readouterr().out)["variants"]["n"])
    assert found[1]["deploy_parameters"] < found[0]["deploy_parameters"]
    assert found[2]["deploy_parameters"] == found[0]["deploy_parameters"]
    assert found[2]["conv_gflops"] == pytest.approx(found[0]["conv_gflops"] / 4)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--variant", "q"], "variant"),
        (["--task", "poetry"], "task"),
        (["--num_classes", "0"], "num_classes"),
        (["--image_size", "650"], "multiple of 32"),
        (["--image_size", "0"], "multiple of 32"),
    ],
    ids=str,
)
def test_wrong_use_is_one_line(argv: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(argv) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("error: ")
    assert printed.err.count("\n") == 1
    assert message in printed.err
