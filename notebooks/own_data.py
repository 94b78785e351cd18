# %% [markdown]
# # Your own data: check and fix
#
# Spoils a data set on purpose, as data sets of the wild are spoiled, and shows what the package says about
# each fault and what a mended copy looks like. Set `data_root` to your own folder to use it in earnest.

# %%
import os
from pathlib import Path

from lucid_yolo.data.dataset import open_split
from lucid_yolo.data.synthetic import draw_shapes
from lucid_yolo.doctor.check import check
from lucid_yolo.doctor.fix import fix

is_fast = os.environ.get("LUCID_YOLO_NOTEBOOK_BUDGET") == "fast"
work = Path("notebook_runs")
data_root = work / "spoiled"
draw_shapes(data_root, num_train=8 if is_fast else 60, num_val=4 if is_fast else 20, image_size_px=160)

# %% [markdown]
# ## Faults

# %%
labels = sorted((data_root / "labels" / "train").glob("*.txt"))
images = sorted((data_root / "images" / "train").iterdir())
with labels[0].open("a") as file:
    file.write("0 0.5 0.5 0.2\n")  # a field is missing
    file.write("99 0.5 0.5 0.2 0.2\n")  # a class that does not exist
    file.write("0 0.98 0.5 0.1 0.2\n")  # reaches a little over the edge
    file.write("0 250 120 40 40\n")  # pixels instead of fractions
with labels[1].open("a") as file:
    file.write(labels[1].read_text().splitlines(keepends=True)[0])  # a row that is there twice
labels[2].unlink()  # an image without labels is background
images[3].write_bytes(b"<html>not found</html>")  # a download that went wrong

# %% [markdown]
# ## The account
#
# Every row of every label file ends in exactly one bin, each dropped one with its reason and its line.

# %%
split = open_split(data_root, "train")
print(split.account.to_table())

# %% [markdown]
# ## The check
#
# In a shell: `lucid-data check --data_root my_dataset`.

# %%
report = check(data_root)
print(report.to_table())
report.num_errors

# %% [markdown]
# ## A mended copy
#
# The data set itself is never written. In a shell: `--fix my_dataset_fixed`.

# %%
fixed = work / "fixed"
print(fix(data_root, fixed).to_table())

# %%
after = check(fixed)
assert after.num_errors == 0
print(after.to_table())
