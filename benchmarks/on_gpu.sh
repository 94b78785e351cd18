#!/usr/bin/env bash
# What needs a GPU, in parts that each fit into ten minutes: bash benchmarks/on_gpu.sh PART DATA OUT
#   tests    the tests under tests/gpu, slowest first in OUT/tests.txt
#   trials   recorded step with parts of it side by side; kernels by time
#   step     floor, resident step and step with its loader
#   fit      complete fit of 40 epochs, once with all cores and once with two
#   pair     complete fits, accelerated against plain, with the certificate
# DATA is a folder in YOLO layout. The package must be importable. An image without Python's bytecode adds seconds to
# every start: compile it first (python -m compileall), as pip does.
set -uo pipefail

part=$1 data=$(realpath -m "$2") out=$(realpath -m "$3")
here=$(cd "$(dirname "$0")/.." && pwd)
mkdir -p "$out"
device_options=(--data.augment_device gpu --data.cache_prepared_train_images true --model.speed.fused_norm true)
fit=(--config detect --data.data_root "$data" "${device_options[@]}" --trainer.max_epochs "${EPOCHS:-40}"
    --trainer.enable_progress_bar false)

case $part in
tests)
    cd "$here" && python -m pytest -m gpu tests/gpu -q --durations=25 -p no:cacheprovider >"$out/tests.txt" 2>&1
    status=$?
    tail -45 "$out/tests.txt"
    exit $status
    ;;
trials)
    python "$here/benchmarks/step_trials.py" 4 16 64 2>&1 | tee "$out/trials.txt"
    ;;
step)
    lucid-bench step --batch_sizes "[4,16,64]" --floor true --fused_norm true --data_root "$data" \
        --augment_device gpu --num_steps 20 2>&1 | tee "$out/step.txt"
    ;;
fit)
    for cores in all 0,1; do
        cd "$(mktemp -d)"
        pin=()
        [ "$cores" = all ] || pin=(taskset -c "$cores")
        "${pin[@]}" python "$here/benchmarks/fit_phases.py" "${fit[@]}" >"$out/fit_$cores.txt" 2>&1 ||
            { tail -5 "$out/fit_$cores.txt" && exit 1; }
        echo "cores: $cores"
        sed -n '/^{$/,$p' "$out/fit_$cores.txt"
    done
    ;;
pair)
    cd "$(mktemp -d)"
    lucid-bench pair --pairs 1 --config detect --data.data_root "$data" "${device_options[@]}" --trainer.max_epochs 2 \
        --a "--model.speed.accelerate none" --b "--model.speed.accelerate auto" 2>&1 | tee "$out/pair.txt"
    ;;
*)
    sed -n '2,9p' "$0"
    exit 2
    ;;
esac
