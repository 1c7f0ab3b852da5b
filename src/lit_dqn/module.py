"""The learner: owns the online and the target network, and does one round of updates per training step."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, cast

import torch
from pytorch_lightning import LightningModule
from pytorch_lightning.core.optimizer import LightningOptimizer
from torch import Tensor

from lit_dqn.agents.agent import Agent
from lit_dqn.learner import Learner
from lit_dqn.networks.qnetwork import QNetwork, acting_values, without_noise
from lit_dqn.optimizers import OptimizerConfig
from lit_dqn.types import Batch, EvaluationResult, PriorityUpdate, QFunction

Evaluate = Callable[[QFunction, int], EvaluationResult]
METRICS = ("train/loss", "train/td_error", "train/q_mean", "train/grad_norm")


class LitDQN(LightningModule):
    """One training step is one round: `updates_per_round` gradient steps on one stacked batch.

    Args:
        q_net: the online network.
        agent: its loss and its target rule.
        optimizer: how to step.
        evaluate: (q_values, env step) -> result; one validation step calls it once.
        update_priorities: gets a round's (row indices, priorities) in one call.
    """

    def __init__(
        self,
        q_net: QNetwork,
        agent: Agent,
        optimizer: OptimizerConfig,
        evaluate: Evaluate,
        update_priorities: PriorityUpdate,
    ) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.q_net = q_net
        self.target_net = copy.deepcopy(q_net).requires_grad_(False)
        self.learner = Learner(q_net, self.target_net, agent, optimizer.max_grad_norm)
        self.optimizer_config = optimizer
        self.evaluate = evaluate
        self.update_priorities = update_priorities
        self.env_step = 0
        self.evaluation: EvaluationResult | None = None  # of the last validation
        self.metrics: dict[str, Tensor] = {}  # means of the last round, 0-dim, on the device

    @property
    def updates(self) -> int:
        """Gradient steps done so far."""
        return self.learner.updates

    def configure_optimizers(self) -> torch.optim.Optimizer:
        self.learner.flatten()  # Lightning has moved the networks to their device by now
        return self.optimizer_config.build([self.learner.online.vector])

    def on_train_start(self) -> None:
        # A resumed optimizer brings its old settings along; what is configured now is what counts.
        optimizer = self._raw_optimizer()
        for group in optimizer.param_groups:
            group.update(optimizer.defaults)

    def _raw_optimizer(self) -> torch.optim.Optimizer:
        optimizer = self.optimizers(use_pl_optimizer=False)
        assert isinstance(optimizer, torch.optim.Optimizer)
        return optimizer

    def training_step(self, batch: Batch) -> None:
        """Do the round's updates. `global_step` counts rounds: only the last step goes through Lightning."""
        self.env_step = batch.env_step
        raw, wrapped = self._raw_optimizer(), cast(LightningOptimizer, self.optimizers())
        for group in raw.param_groups:
            group["lr"] = self.optimizer_config.lr(batch.env_step)
        *minibatches, last = batch.minibatches()
        outputs = [self.learner.update(minibatch, raw.step) for minibatch in minibatches]
        outputs.append(self.learner.update(last, wrapped.step))
        self.update_priorities(batch.index, torch.stack([out.priority for out, _ in outputs]))
        columns = (
            [out.loss.detach() for out, _ in outputs],
            [out.td_error for out, _ in outputs],
            [out.q_taken for out, _ in outputs],
            [norm for _, norm in outputs],
        )
        self.metrics = {name: torch.stack(c).mean() for name, c in zip(METRICS, columns, strict=True)}

    def validation_step(self, batch: int) -> None:
        # Also at the end of a run, where Lightning sets neither mode nor precision: always in float32.
        with without_noise(self.q_net), torch.autocast(self.device.type, enabled=False):
            self.evaluation = self.evaluate(acting_values(self.q_net), self.env_step)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["learner"] = {"updates": self.learner.updates, "env_step": self.env_step}

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.learner.updates = checkpoint["learner"]["updates"]
        self.env_step = checkpoint["learner"]["env_step"]
