"""The LightningModule: builds the step, calls it, evaluates; decides nothing else."""

from __future__ import annotations

import copy
import logging
from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from typing import Any

import torch
from lightning.pytorch import LightningModule
from torch import Tensor
from typing_extensions import override

from lucid_yolo.assign.task_aligned import AssignConfig
from lucid_yolo.engine.batch_size import auto_batch_size, largest_capacity
from lucid_yolo.engine.datamodule import detector_data
from lucid_yolo.engine.eligibility import speed_obstacles
from lucid_yolo.engine.finetune import read_start_weights, transfer_weights
from lucid_yolo.engine.resume import check_same_run, check_unfinished, random_state, restore_random_state
from lucid_yolo.engine.strategy import collective_of, gather_objects
from lucid_yolo.kernels.augment.planned_batch import TrainBatch
from lucid_yolo.models.freeze import frozen_parameters
from lucid_yolo.models.head import BRANCHES
from lucid_yolo.models.network import Network, use_norm_kernel
from lucid_yolo.models.scales import STRIDES, Variant
from lucid_yolo.optim.musgd import MuSGDConfig
from lucid_yolo.optim.schedule import RunLength, ScheduleConfig, build_schedule
from lucid_yolo.runtime.checkpoint_file import FORMAT, NETWORK_PREFIX, SECTION, ModelMeta, read_meta
from lucid_yolo.runtime.detector import Detector
from lucid_yolo.runtime.determinism import make_deterministic
from lucid_yolo.runtime.evaluation import Evaluation, SplitEvaluator, check_classes
from lucid_yolo.runtime.gradient_plans import GradientPlans
from lucid_yolo.runtime.precision import HALF_DTYPES, PrecisionName, resolve_precision
from lucid_yolo.runtime.speed import Speed, choose_speed
from lucid_yolo.runtime.state import TrainState
from lucid_yolo.runtime.step import StepConfig, TrainStep
from lucid_yolo.structures import Batch, ClassMap
from lucid_yolo.tasks.detect import LossGains
from lucid_yolo.tasks.task import Task

_log = logging.getLogger(__name__)

DEFAULT_TASK = "detect"
DEFAULT_VARIANT: Variant = "n"
DEFAULT_IMAGE_SIZE_PX = 640


class StepOptimizer(torch.optim.Optimizer):
    """What Lightning sees as the optimiser: it runs the closure, which holds the whole training step."""

    def __init__(self, network: Network) -> None:
        super().__init__(network.parameters(), {"lr": 0.0})

    @override
    def step(self, closure: Any = None) -> Any:
        """Run the training step."""
        return closure()


class DetectorModule(LightningModule):
    """A detector in training or evaluation.

    Arguments that say what the network is may be None: they then come from the checkpoint, else from the defaults.

    Args:
        task: Task name; default ``detect``.
        variant: Scale ``n s m l x``; default ``n``.
        image_size: Side of the square input in pixels, a multiple of 32; default 640.
        class_map: Classes as ``{"names": [...], "source_ids": [...]}``; default those of the data set.
        precision: Precision of the network forward.
        accumulate: Batches per update.
        clip_norm: Upper bound of the gradient norm; 0 for none.
        optimizer: Constants of MuSGD.
        schedule: Learning rate, momentum, branch weight and averaging over the run.
        loss: Weights of the loss terms.
        assign: Constants of the assignment.
        speed: What to accelerate.
        seed: Seed of the initial weights.
        resume_override: Allow a resumed run to differ from the saved one in schedule, batch size, seed and the like.
        weights: Checkpoint (its averaged weights) or exported ``.safetensors`` file that a new run starts from; a
            resumed run leaves it alone.
        freeze: What is not trained: so many layers of the backbone from the image on (11 are all of it), or beginnings
            of names such as ``backbone``, ``neck``, ``head.one_to_many``.

    Raises:
        ValueError: The image size is no multiple of 32.

    Attributes:
        state: Everything the training step changes; exists during fit.
        train_step: The training step; exists during fit.
        speed_options: Names of the options of ``Speed`` that are used in this fit.
        last_metrics: Values of the last step, on the device.
        evaluation: Result of the last evaluation.
    """

    def __init__(
        self,
        task: str | None = None,
        variant: Variant | None = None,
        image_size: int | None = None,
        class_map: dict[str, list[Any]] | None = None,
        precision: PrecisionName = "auto",
        accumulate: int = 1,
        clip_norm: float = 10.0,
        optimizer: MuSGDConfig | None = None,
        schedule: ScheduleConfig | None = None,
        loss: LossGains | None = None,
        assign: AssignConfig | None = None,
        speed: Speed | None = None,
        seed: int = 0,
        resume_override: bool = False,
        weights: str | None = None,
        freeze: int | list[str] | str = 0,
    ) -> None:
        super().__init__()
        if image_size is not None and (image_size < 1 or image_size % STRIDES[-1]):
            raise ValueError(f"image_size: expected a multiple of {STRIDES[-1]}, found {image_size}")
        self.automatic_optimization = False
        self.task_name, self.variant, self.image_size = task, variant, image_size
        self.class_map = ClassMap.from_dict(class_map) if class_map else None
        self.precision, self.accumulate, self.clip_norm = precision, accumulate, clip_norm
        self.optimizer_config = optimizer or MuSGDConfig()
        self.schedule_config = schedule or ScheduleConfig()
        self.loss_gains, self.assign_config = loss or LossGains(), assign or AssignConfig()
        self.speed = speed or Speed()
        self.seed, self.resume_override = seed, resume_override
        self.weights = None if weights is None else str(weights)
        self.frozen_parts = [freeze] if isinstance(freeze, str) else freeze
        self.speed_options: frozenset[str] = frozenset()
        self.network: Network | None = None
        self.state: TrainState | None = None
        self.train_step: TrainStep | None = None
        self.last_metrics: Tensor | None = None
        self.evaluation: Evaluation | None = None
        self._is_random = False
        self._restored: dict[str, Any] | None = None
        self._evaluator: SplitEvaluator | None = None
        self._detector: Detector | None = None

    @property
    def meta(self) -> ModelMeta:
        """What the network is."""
        if self.class_map is None:
            self.class_map = detector_data(self.trainer).class_map
        if self.weights is not None and None in (self.task_name, self.variant, self.image_size):
            start = read_start_weights(self.weights).meta
            self.task_name, self.variant = self.task_name or start.task, self.variant or start.variant
            self.image_size = self.image_size or start.image_size_px
        return ModelMeta(
            self.task_name or DEFAULT_TASK,
            self.variant or DEFAULT_VARIANT,
            self.class_map,
            self.image_size or DEFAULT_IMAGE_SIZE_PX,
        )

    @property
    def is_between_updates(self) -> bool:
        """Whether the last micro-step completed an update."""
        return self.state is not None and self.state.micro_index == 0

    @property
    def task(self) -> Task:
        """The task, with this module's constants."""
        return self._task(self.speed_options)

    def _task(self, options: frozenset[str]) -> Task:
        assignment = "kernel" if "fused_assignment" in options else "reference"
        return self.meta.build_task(loss=self.loss_gains, assign=self.assign_config, assignment=assignment)

    def make_step(self, network: Network, options: frozenset[str]) -> TrainStep:
        """Return the training step of this run for ``network``, which becomes part of a state of its own.

        Args:
            network: On the device of the run.
            options: Names of the options of ``Speed`` that change how the step is built; recording starts later.
        """
        size_px, device = self.meta.image_size_px, next(network.parameters()).device
        if "fused_norm" in options:
            use_norm_kernel(network)
        config = StepConfig(
            (size_px, size_px),
            resolve_precision(self.precision, device),
            self.accumulate,
            self.clip_norm,
            self.optimizer_config,
        )
        schedule = build_schedule(self.schedule_config, self._run_length())
        state = TrainState(network, frozen_parameters(network, self.frozen_parts))
        pixels = detector_data(self.trainer).train_source().resident
        return TrainStep(state, self._task(options), schedule, config, collective_of(self.trainer.strategy), pixels)

    @override
    def configure_model(self) -> None:
        """Build the network, the same for the same seed whatever was drawn before."""
        if self._trainer is not None:
            detector_data(self.trainer).image_size_px = self.meta.image_size_px
        if self.network is not None:
            return
        make_deterministic()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            self.network = Network(self.meta.variant, self.task.stems)
        self._is_random = True
        meta = self.meta
        plain = {"task": meta.task, "variant": meta.variant, "image_size": meta.image_size_px}
        self.save_hyperparameters({**plain, "class_map": meta.class_map.to_dict()})

    def settle_batch_size(self, options: frozenset[str]) -> None:
        """Find the batch size where it is ``auto``: the saved run's, else the least of what each rank can take.

        Args:
            options: Names of the options of ``Speed`` that the step uses.
        """
        data, world_size = detector_data(self.trainer), self.trainer.world_size
        if not data.is_batch_size_auto:
            return
        if self._restored is not None:
            data.batch_size = int(self._restored["run"]["global_batch_size"]) // world_size
        else:
            records = data.splits["train"].records
            build = partial(self._build_probe, options)
            blank, limit = data.train_source().blank, len(records) // world_size
            own = auto_batch_size(build, self.device, limit, largest_capacity(records), blank)
            data.batch_size = min(int(str(number)) for number in gather_objects(own))
        data.is_batch_size_auto = False

    def _build_probe(self, options: frozenset[str]) -> TrainStep:
        """Return a training step that shares nothing with the run, not even the exchange with other ranks."""
        step = self.make_step(copy.deepcopy(self._built()).train(), options)
        step.collective = None
        if "capture_step" in options:
            step.record()
        return step

    def initialize(self) -> None:
        """Start a new run from the trained weights, if any; say so where random values are frozen.

        Raises:
            ValueError: The weights are of another kind of network.
        """
        if not self._is_random:
            return
        self._is_random, network = False, self._built()
        fresh = frozenset(name for name, _ in network.named_parameters())
        if self.weights is not None:
            transfer = transfer_weights(network, self.meta, read_start_weights(self.weights), self.weights)
            fresh = transfer.fresh
            _log.info(transfer.line)
        if frozen := frozen_parameters(network, self.frozen_parts) & fresh:
            _log.warning("freeze: %d of the frozen tensors have random values, such as %s", len(frozen), min(frozen))

    @override
    def configure_optimizers(self) -> StepOptimizer:
        """Return the shell that runs the step."""
        return StepOptimizer(self._built())

    @override
    def on_fit_start(self) -> None:
        """Lay out the state on the device, build the step, restore a saved run.

        Raises:
            ValueError: The data set has other classes than the network, the strategy is another one, or the run that
                is continued differs.
        """
        check_classes(self.meta.class_map, detector_data(self.trainer).class_map)
        choice = choose_speed(self.speed, speed_obstacles(self.trainer))
        self.speed_options = choice.options
        if choice.line:
            _log.info(choice.line)
        self.settle_batch_size(self.speed_options)
        if self._restored is None:
            self.initialize()
        is_recorded = "capture_step" in self.speed_options
        plans = self._plan_gradients() if is_recorded else None  # meanwhile source images go to the device
        self.train_step = self.make_step(self._built(), self.speed_options)
        self.state = self.train_step.state
        if self._restored is not None:
            self._resume(self._restored)
            self._restored = None
        averaged = self.state.averaged_network
        self._detector = Detector(averaged, self.task, self.meta, self.precision, BRANCHES)
        if is_recorded:
            self.train_step.record(plans)
            self._detector.record()

    def _plan_gradients(self) -> GradientPlans:
        precision = resolve_precision(self.precision, self.device)
        dtype = HALF_DTYPES.get(precision, torch.float32)
        return GradientPlans(self._built(), detector_data(self.trainer).batch_size, self.meta.image_size_px, dtype)

    def training_step(self, batch: TrainBatch, batch_idx: int) -> None:
        """Run one micro-step; the last of an update goes through Lightning's optimiser, which counts it."""
        assert self.state is not None
        if self.state.micro_index + 1 == self.accumulate:
            optimizer = self.optimizers()
            assert not isinstance(optimizer, list)
            optimizer.step(closure=partial(self._run_step, batch))
        else:
            self._run_step(batch)

    def on_validation_model_zero_grad(self) -> None:
        """Gradients belong to the step."""

    @override
    def on_validation_start(self) -> None:
        """Point the detector at the averaged network of a fit, or at the one loaded from a checkpoint."""
        if self._detector is None:
            network = self.state.averaged_network if self.state is not None else self._built()
            self._detector = Detector(network, self.task, self.meta, self.precision, BRANCHES)
        name = "test" if self.trainer.testing else "val"
        split = detector_data(self.trainer).splits[name]
        check_classes(self.meta.class_map, split.class_map)
        self._evaluator = SplitEvaluator(split, self.meta.image_size_px)

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        """Detect with both branches."""
        assert self._detector is not None
        assert self._evaluator is not None
        self._evaluator.update(batch, self._detector.detect(batch.images))

    def on_validation_epoch_end(self) -> None:
        """Score both branches over all ranks; a sanity check scores nothing."""
        assert self._evaluator is not None
        if self.trainer.sanity_checking:
            return
        gathered = gather_objects(self._evaluator.detections)
        detections = {
            branch: [row for part in gathered for row in part.get(branch, [])]  # type: ignore[attr-defined]
            for branch in BRANCHES
        }
        self.evaluation = self._evaluator.compute(detections)
        self.log_dict(self.evaluation.scalars(), rank_zero_only=True)

    on_test_start = on_validation_start
    test_step = validation_step
    on_test_epoch_end = on_validation_epoch_end

    @override
    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Add what the network is, the step's state and the random generators; copy every view."""
        assert self.state is not None
        own = {NETWORK_PREFIX + name: value for name, value in self.state.network_state_dict().items()}
        state = checkpoint["state_dict"].items()
        checkpoint["state_dict"] = {name: own[name] if name in own else value.clone() for name, value in state}
        checkpoint[SECTION] = {
            "format": FORMAT,
            "meta": self.meta.to_dict(),
            "train_state": self.state.state_dict(),
            "run": self._run_identity(),
            "random": random_state(),
        }

    @override
    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Keep a saved run for :meth:`on_fit_start`; outside fit take the averaged parameters.

        Raises:
            ValueError: The checkpoint holds another kind of network than this module.
        """
        saved = read_meta(checkpoint)
        if self.class_map is None and self._trainer is None:
            self.class_map = saved.class_map
        if saved != self.meta:
            raise ValueError(f"the checkpoint holds {saved}, the configuration asks for {self.meta}")
        if self._trainer is not None and self.trainer.training:
            self._restored = dict(checkpoint[SECTION])
        else:
            self.state = self._detector = None
            self._is_random = False
            checkpoint.pop("callbacks", None)  # they belong to the fit
            averaged = checkpoint[SECTION]["train_state"]["ema"]
            checkpoint["state_dict"] |= {NETWORK_PREFIX + name: value for name, value in averaged.items()}

    @override
    def teardown(self, stage: str) -> None:
        """Drop what belongs to one run; the step holds source images on the device."""
        self.release()
        self.train_step = None

    def release(self) -> None:
        """Free recordings and what belongs to one evaluation; the state stays."""
        if self.train_step is not None:
            self.train_step.release()
        if self._detector is not None:
            self._detector.release()
        self._detector = self._evaluator = None

    def __getstate__(self) -> dict[str, Any]:
        self.release()
        return {**self.__dict__, "state": None, "train_step": None}

    def _built(self) -> Network:
        if self.network is None:
            raise RuntimeError("the network is built by configure_model, which has not run")
        return self.network

    def _run_step(self, batch: TrainBatch) -> None:
        assert self.train_step is not None
        self.last_metrics = self.train_step.run(batch)

    def _run_length(self) -> RunLength:
        return detector_data(self.trainer).run_length(self.accumulate)

    def _run_identity(self) -> dict[str, Any]:
        """Return what a resumed run must share with the saved one."""
        data = detector_data(self.trainer)
        return {
            "num_updates": self._run_length().num_updates,
            "schedule": asdict(self.schedule_config),
            "global_batch_size": data.batch_size * self.trainer.world_size,
            "accumulate": self.accumulate,
            "seed": self.seed,
            "data_seed": data.seed,
            "optimizer": asdict(self.optimizer_config),
            "freeze": self.frozen_parts or 0,
        }

    def _resume(self, saved: Mapping[str, Any]) -> None:
        assert self.state is not None
        run = self._run_identity()
        check_same_run(saved["run"], run, self.resume_override)
        self.state.load_state_dict(saved["train_state"])
        check_unfinished(int(self.state.update_index), run["num_updates"])
        restore_random_state(saved["random"])


def detector_module(module: LightningModule) -> DetectorModule:
    """Return ``module`` as what the callbacks of this package expect.

    Raises:
        ValueError: It is of another kind.
    """
    if not isinstance(module, DetectorModule):
        raise ValueError(f"module: expected DetectorModule, found {type(module).__name__}")
    return module
