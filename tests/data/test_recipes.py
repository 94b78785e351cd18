"""The packaged detection recipes against the published tables, column by column."""

from dataclasses import fields
from typing import Any

import pytest

from lucid_yolo.data.policy import AugmentPolicy
from lucid_yolo.engine.config import list_recipes, load_config, resolve_variant
from lucid_yolo.optim.musgd import MuSGDConfig
from lucid_yolo.optim.schedule import ScheduleConfig
from lucid_yolo.tasks.detect import LossGains

SECTIONS: dict[str, type] = {
    "model.schedule": ScheduleConfig,
    "model.optimizer": MuSGDConfig,
    "model.loss": LossGains,
    "data.augment": AugmentPolicy,
}
VARIANTS = "nsmlx"
# Values per scale n, s, m, l, x; one value holds for all.
PRETRAIN: dict[str, list[float]] = {
    "trainer.max_epochs": [150],
    "model.schedule.lr0": [0.01],
    "model.schedule.lrf": [0.01],
    "model.schedule.momentum": [0.937],
    "model.schedule.warmup_epochs": [1, 1, 1, 1, 2],
    "model.optimizer.weight_decay": [0.0005],
    "model.optimizer.muon_w": [0.45, 0.50, 0.45, 0.45, 0.50],
    "model.optimizer.sgd_w": [0.55, 0.50, 0.55, 0.55, 0.60],
    "model.loss.box": [7.5],
    "model.loss.cls": [0.5],
    "model.loss.l1": [6.0],
    "data.batch_size": [128],
    "data.augment.close_mosaic": [8],
    "data.augment.mosaic": [1.0],
    "data.augment.mixup": [0.0, 0.05, 0.15, 0.15, 0.20],
    "data.augment.copy_paste": [0.10, 0.15, 0.40, 0.50, 0.60],
    "data.augment.scale": [0.5, 0.9, 0.9, 0.9, 0.9],
    "data.augment.fliplr": [0.5],
    "data.augment.degrees": [0],
    "data.augment.shear": [0],
    "data.augment.translate": [0.1],
    "data.augment.hsv_h": [0.015],
    "data.augment.hsv_s": [0.7],
    "data.augment.hsv_v": [0.4],
    "data.augment.bgr": [0],
}
COCO: dict[str, list[float]] = {
    "trainer.max_epochs": [245, 70, 80, 60, 40],
    "model.schedule.lr0": [0.0054, 0.00038, 0.00038, 0.00038, 0.00038],
    "model.schedule.lrf": [0.0495, 0.882, 0.882, 0.882, 0.882],
    "model.schedule.momentum": [0.947, 0.948, 0.948, 0.948, 0.948],
    "model.schedule.warmup_epochs": [0.98, 0.99, 0.99, 0.99, 0.99],
    "model.optimizer.weight_decay": [0.00064, 0.00027, 0.00027, 0.00027, 0.00027],
    "model.optimizer.muon_w": [0.528, 0.436, 0.436, 0.436, 0.436],
    "model.optimizer.sgd_w": [0.674, 0.479, 0.479, 0.479, 0.479],
    "model.loss.box": [5.62767, 9.83, 9.83, 9.83, 9.83],
    "model.loss.cls": [0.56099, 0.65, 0.65, 0.65, 0.65],
    "model.loss.l1": [9.03871, 0.96, 0.96, 0.96, 0.96],
    "data.batch_size": [128],
    "data.augment.close_mosaic": [10],
    "data.augment.mosaic": [0.909, 0.992, 0.992, 0.992, 0.992],
    "data.augment.mixup": [0.012, 0.05, 0.427, 0.427, 0.427],
    "data.augment.copy_paste": [0.075, 0.404, 0.304, 0.404, 0.404],
    "data.augment.scale": [0.562, 0.90, 0.95, 0.95, 0.95],
    "data.augment.fliplr": [0.606, 0.304, 0.304, 0.304, 0.304],
    "data.augment.degrees": [1.11, 0, 0, 0, 0],
    "data.augment.shear": [1.46, 0, 0, 0, 0],
    "data.augment.translate": [0.071, 0.275, 0.275, 0.275, 0.275],
    "data.augment.hsv_h": [0.014, 0.013, 0.013, 0.013, 0.013],
    "data.augment.hsv_s": [0.645, 0.353, 0.353, 0.353, 0.353],
    "data.augment.hsv_v": [0.566, 0.194, 0.194, 0.194, 0.194],
    "data.augment.bgr": [0.106, 0, 0, 0, 0],
}


def flat(config: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    values: dict[str, Any] = {}
    for key, value in config.items():
        values |= flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return values


@pytest.mark.parametrize(("recipe", "table"), [("detect_pretrain", PRETRAIN), ("detect_coco", COCO)])
def test_recipe_is_the_published_table(recipe: str, table: dict[str, list[float]]) -> None:
    for column, variant in enumerate(VARIANTS):
        expected = {key: row[column] if len(row) > 1 else row[0] for key, row in table.items()}
        assert flat(resolve_variant(load_config(recipe), variant)) == expected, variant


@pytest.mark.parametrize("recipe", [name for name in list_recipes() if name.startswith("detect")])
@pytest.mark.parametrize("variant", VARIANTS)
def test_recipe_has_only_options_that_exist_and_legal_values(recipe: str, variant: str) -> None:
    config = resolve_variant(load_config(recipe), variant)
    for section, kind in SECTIONS.items():
        top, name = section.split(".")
        values = config[top].get(name, {})
        assert values.keys() <= {field.name for field in fields(kind)}
        kind(**values)
