"""What the training loop rests on: each fact about Lightning, torch and TensorBoard, one test."""

from __future__ import annotations

import functools
import logging
import signal
import warnings
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
from omegaconf import OmegaConf
from pytorch_lightning.loggers import CSVLogger
from torch.utils.data import DataLoader, IterableDataset

from lit_dqn import train
from lit_dqn.callbacks.checkpoints import Checkpoints
from lit_dqn.checkpoint_file import DATA
from lit_dqn.data import ReplayDataModule, ReplayDataset
from lit_dqn.errors import RunError
from lit_dqn.evaluation import Evaluator
from lit_dqn.module import LitDQN
from lit_dqn.networks.mlp import MLP
from runs import config, difference, last, load, metrics, run, weights

QUIET = [
    "ignore:.*does not have many workers",
    "ignore:Your `IterableDataset` has `__len__` defined",
    "ignore:.*LeafSpec",
]
CARTPOLE = ["env=cartpole", "experience.num_envs=1"]
ROUNDS = 18  # (400 - 40) / 20


class Numbers(IterableDataset[int]):
    """Notes when each number is fetched."""

    def __init__(self, events: list[str]) -> None:
        self.events = events

    def __iter__(self) -> Any:
        for n in range(4):
            self.events.append(f"fetch {n}")
            yield n


class SizedNumbers(Numbers):
    def __len__(self) -> int:
        return 4


class Steps(pl.LightningModule):
    """Several raw optimizer steps and one wrapped one per training step."""

    def __init__(self, events: list[str]) -> None:
        super().__init__()
        self.events, self.layer = events, torch.nn.Linear(1, 1)
        self.automatic_optimization = False

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), 0.1)

    def training_step(self, batch: int) -> None:
        self.events.append(f"step {batch}")
        raw, wrapped = self.optimizers(use_pl_optimizer=False), self.optimizers()
        for step in (raw.step, raw.step, wrapped.step):  # type: ignore[union-attr]
            self.layer(torch.ones(1, 1)).sum().backward()
            step()


def fit(numbers: Numbers, folder: Path) -> pl.Trainer:
    trainer = pl.Trainer(
        max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False, default_root_dir=folder
    )
    loader = DataLoader(numbers, batch_size=None)
    trainer.fit(Steps(numbers.events), loader)
    return trainer


@pytest.mark.filterwarnings(*QUIET)
def test_an_iterable_dataset_with_a_length_is_not_fetched_ahead(tmp_path):
    events: list[str] = []
    fit(SizedNumbers(events), tmp_path)
    assert events[:4] == ["fetch 0", "step 0", "fetch 1", "step 1"]


@pytest.mark.filterwarnings(*QUIET)
def test_an_iterable_dataset_without_a_length_is_fetched_ahead(tmp_path):
    events: list[str] = []
    fit(Numbers(events), tmp_path)
    assert events[:3] == ["fetch 0", "fetch 1", "step 0"]


class Validating(Steps):
    """Stops at its second step, with a validation in three batches."""

    def training_step(self, batch: int) -> None:
        super().training_step(batch)
        self.trainer.should_stop = batch == 1

    def validation_step(self, batch: Any) -> None:
        self.events.append("validate")


@pytest.mark.filterwarnings(*QUIET)
def test_stopping_runs_a_whole_validation_first(tmp_path):
    events: list[str] = []
    trainer = pl.Trainer(
        max_epochs=1,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        num_sanity_val_steps=0,
        default_root_dir=tmp_path,
    )
    trainer.fit(Validating(events), DataLoader(SizedNumbers(events), batch_size=None), DataLoader([0, 1, 2]))
    assert events[-5:] == ["fetch 1", "step 1", "validate", "validate", "validate"]


def test_lightnings_csv_logger_begins_anew_over_a_file_that_is_there(tmp_path):
    logger = CSVLogger(tmp_path, name="", version="")
    (Path(logger.log_dir) / "metrics.csv").write_text("step,a\n1,2\n")
    logger = CSVLogger(tmp_path, name="", version="")
    with pytest.warns(UserWarning, match="exists and is not empty"):
        logger.log_metrics({"b": 1.0}, step=2)
    logger.save()
    assert (Path(logger.log_dir) / "metrics.csv").read_text().splitlines()[0] == "b,step"


class Moody(MLP):
    """A user's network that notes in which mode and precision it is asked."""

    asked: ClassVar[list[tuple[bool, bool]]] = []

    def forward(self, obs: torch.Tensor, *arguments: Any) -> Any:
        self.asked.append((self.training, torch.is_autocast_enabled("cpu")))
        return super().forward(obs, *arguments)


def test_every_evaluation_is_in_evaluation_mode_and_float32(tmp_path, monkeypatch):
    asked: list[list[tuple[bool, bool]]] = []
    evaluate = Evaluator.__call__

    def noted(self: Evaluator, *arguments: Any) -> Any:
        Moody.asked.clear()
        result = evaluate(self, *arguments)
        asked.append(Moody.asked.copy())
        return result

    monkeypatch.setattr(Evaluator, "__call__", noted)
    values = ["trainer.precision=bf16-mixed", "evaluation.interval=150"]  # 150, 300, and the end at 400
    own = OmegaConf.create({"network": {"_target_": f"{__name__}.Moody"}})
    train(OmegaConf.merge(config(*CARTPOLE, *values), own), tmp_path)
    assert len(asked) == 3
    assert all({*one} == {(False, False)} for one in asked)


@pytest.mark.filterwarnings(*QUIET)
def test_only_the_wrapped_optimizers_step_advances_global_step(tmp_path):
    assert fit(SizedNumbers([]), tmp_path).global_step == 4


@pytest.fixture(scope="module")
def events(tmp_path_factory) -> dict[str, Any]:
    """A run and its extension, with what happened in which order."""
    folder = tmp_path_factory.mktemp("facts") / "run"
    seen: list[str] = []
    lengths: list[int] = []
    epochs: list[int] = []
    with pytest.MonkeyPatch.context() as patch:

        def note(owner: type, name: str, word: str) -> None:
            original = getattr(owner, name)

            @functools.wraps(original)  # Lightning looks at signatures
            def noting(self: Any, *args: Any, **kwargs: Any) -> Any:
                seen.append(word)
                if word == "step":
                    epochs.append(self.trainer.current_epoch)
                if word == "save":
                    lengths.append(len(args[0].datamodule.dataset))
                return original(self, *args, **kwargs)

            patch.setattr(owner, name, noting)

        note(ReplayDataset, "_next_round", "collect")
        note(LitDQN, "training_step", "step")
        note(LitDQN, "validation_step", "evaluate")
        note(Checkpoints, "save", "save")
        note(ReplayDataModule, "load_state_dict", "restore")
        note(ReplayDataModule, "train_dataloader", "loader")
        run(folder, *CARTPOLE, "total_env_steps=200")
        first, seen[:] = list(seen), []
        short = load(last(folder))
        run(folder, *CARTPOLE, f"resume={last(folder)}")
    return {
        "folder": folder,
        "short": short,
        "long": load(last(folder)),
        "first": first,
        "second": seen,
        "lengths": lengths,
        "epochs": epochs,
    }


def test_rounds_are_collected_and_learned_in_turns(events):
    rounds = [event for event in events["first"] if event in ("collect", "step")]
    assert rounds == ["collect", "step"] * 8
    assert events["first"][0] == "loader"


def test_global_step_counts_rounds_and_the_length_is_the_whole_runs(events):
    assert events["short"]["global_step"] == 8
    assert events["long"]["global_step"] == ROUNDS
    assert events["lengths"] == [8, ROUNDS]
    assert events["long"]["learner"]["updates"] == 2 * ROUNDS


def test_there_is_one_epoch_also_after_a_resume(events):
    assert set(events["epochs"]) == {0}
    assert events["long"]["epoch"] == 0


def test_a_checkpoint_of_the_last_round_trains_on_when_extended(events):
    assert events["second"].count("step") == ROUNDS - 8


def test_so_does_one_that_no_evaluation_was_due_at(tmp_path):
    run(tmp_path, *CARTPOLE, "total_env_steps=200", "evaluation.episodes=0")
    run(tmp_path, *CARTPOLE, "evaluation.episodes=0", f"resume={last(tmp_path)}")
    assert load(last(tmp_path))["global_step"] == ROUNDS


def test_a_checkpoint_comes_after_the_evaluation_due_at_its_round(events):
    assert events["first"][-3:] == ["step", "evaluate", "save"]
    assert events["second"][-3:] == ["step", "evaluate", "save"]


def test_the_datas_state_is_in_checkpoints_and_restored_before_the_loader_is_asked_for(events):
    assert events["short"][DATA]["round"] == 8
    assert events["second"][:2] == ["restore", "loader"]


def test_checkpoints_hold_tensors_and_plain_containers_alone(events):
    checkpoints = last(events["folder"]).parent
    plain = (dict, list, tuple, str, int, float, bool, type(None), torch.Tensor)

    def kinds(value: Any) -> set[type]:
        if isinstance(value, dict):
            inner = [*value.keys(), *value.values()]
        else:
            inner = list(value) if isinstance(value, (list, tuple)) else []
        return {type(value)}.union(*map(kinds, inner))

    for name in ("last.ckpt", "best.ckpt"):
        content = torch.load(checkpoints / name, weights_only=True)
        strange = {kind for kind in kinds(content) if kind not in plain and not issubclass(kind, dict)}
        assert not strange


def test_no_file_has_an_equals_sign_or_another_special_character_in_its_name(events):
    for path in events["folder"].rglob("*"):
        assert not set("=,[] ") & set(path.name), path


def test_numpys_other_generators_do_not_load_as_weights_but_pcg64_does(tmp_path):
    torch.save(np.random.Generator(np.random.PCG64(0)).bit_generator.state, tmp_path / "pcg64")
    assert torch.load(tmp_path / "pcg64", weights_only=True)["bit_generator"] == "PCG64"
    torch.save(np.random.Generator(np.random.MT19937(0)).bit_generator.state, tmp_path / "mt19937")
    with pytest.raises(Exception, match=r"weights_only|Unsupported"):
        torch.load(tmp_path / "mt19937", weights_only=True)


@pytest.mark.parametrize(
    "make",
    [
        lambda p: torch.optim.Adam(p, lr=1e-2, fused=True),
        lambda p: torch.optim.RMSprop(p, lr=1e-2, foreach=True, centered=True),
    ],
    ids=["fused Adam", "RMSprop"],
)
def test_an_optimizer_resumes_exactly(make, tmp_path):
    def network() -> torch.nn.Module:
        return torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))

    def learn(net: torch.nn.Module, optimizer: torch.optim.Optimizer, seeds: range) -> None:
        for seed in seeds:
            optimizer.zero_grad()
            net(torch.rand(4, 3, generator=torch.Generator().manual_seed(seed))).square().sum().backward()
            optimizer.step()

    one = network()
    optimizer = make(one.parameters())
    learn(one, optimizer, range(5))
    torch.save({"net": one.state_dict(), "optimizer": optimizer.state_dict()}, tmp_path / "half")
    learn(one, optimizer, range(5, 10))
    other = network()
    resumed = make(other.parameters())
    half = torch.load(tmp_path / "half", weights_only=True)
    other.load_state_dict(half["net"])
    resumed.load_state_dict(half["optimizer"])
    learn(other, resumed, range(5, 10))
    assert difference(dict(one.state_dict()), dict(other.state_dict())) is None
    assert difference(optimizer.state_dict(), resumed.state_dict()) is None


def test_what_is_configured_now_replaces_a_resumed_optimizers_settings(events, tmp_path):
    source = last(events["folder"])
    run(tmp_path / "on", *CARTPOLE, "total_env_steps=420", "optimizer.eps=0.125", f"resume={source}")
    group = load(last(tmp_path / "on"))["optimizer_states"][0]["param_groups"][0]
    assert group["eps"] == 0.125


def test_lightning_says_nothing(fork_server, tmp_path):
    """In a process of its own: what was said once, or is a warning, might not be said again."""
    folder, output = tmp_path / "run", tmp_path / "output"
    for more in ([], [f"resume={last(folder)}", "total_env_steps=400"]):
        values = OmegaConf.to_container(
            config(*CARTPOLE, "total_env_steps=200", "checkpoint.interval=1000", *more)
        )
        assert fork_server.run(config=values, folder=str(folder), output=str(output)) == 0
    assert output.read_text() == ""


def test_lightnings_loggers_and_warnings_filters_are_as_before_after_a_run(tmp_path):
    logger = logging.getLogger("pytorch_lightning")
    before = logger.level, list(warnings.filters), list(logging.getLogger().handlers)
    logger.setLevel(logging.INFO)
    run(tmp_path / "run", *CARTPOLE, "total_env_steps=60", "evaluation.episodes=0")
    assert logger.level == logging.INFO
    logger.setLevel(before[0])
    assert (list(warnings.filters), list(logging.getLogger().handlers)) == before[1:]


def test_a_warning_in_a_run_that_is_not_one_of_lightnings_is_shown(tmp_path, monkeypatch):
    monkeypatch.setattr("lit_dqn.learner.Learner._clip", lambda self: warnings.warn("mine", stacklevel=1))
    with pytest.raises(UserWarning, match="mine"):
        run(tmp_path / "run", *CARTPOLE)


@pytest.mark.parametrize("name", ["Trap/InterruptInStep-v0", "Trap/ExitInStep-v0"])
def test_an_env_that_raises_keyboard_interrupt_or_exits_is_a_failed_run(name, tmp_path):
    # A shell starts background commands with SIGINT ignored: say what the handler is.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(RunError, match="planned failure in step"):
            run(tmp_path / "run", "env=gym", f"env.id={name}")
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)


def test_an_envs_own_failure_comes_out_as_it_is_and_is_in_the_log(tmp_path):
    with pytest.raises(RuntimeError, match="planned failure in step 10"):
        run(tmp_path / "run", "env=gym", "env.id=Trap/RaiseInStep-v0")
    assert "planned failure in step 10" in (tmp_path / "run" / "train.log").read_text()


def test_an_env_that_fails_while_closing_does_not_spoil_a_run(tmp_path):
    with pytest.warns(UserWarning, match="closing the env failed"):
        assert run(tmp_path / "run", "env=gym", "env.id=Trap/RaiseInClose-v0")["finished"]


def test_threads_are_one_unless_said(tmp_path):
    run(tmp_path / "run", *CARTPOLE, "total_env_steps=60", "evaluation.episodes=0")
    assert torch.get_num_threads() == 1


def test_bfloat16_autocast_trains(tmp_path):
    run(tmp_path / "run", *CARTPOLE, "total_env_steps=100", "trainer.precision=bf16-mixed")
    assert all(
        value.dtype == torch.float32
        for value in weights(tmp_path / "run")["state_dict"].values()
        if isinstance(value, torch.Tensor)
    )


def test_train_makes_a_folder_of_its_own_when_none_is_named(tmp_path, monkeypatch):
    from lit_dqn import train

    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        train(config(*CARTPOLE, "total_env_steps=60", "evaluation.episodes=0"))
    folders = list(tmp_path.glob("outputs/*/*"))
    assert len(folders) == 2
    assert all(metrics(folder) for folder in folders)
