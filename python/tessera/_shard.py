"""Models over many devices (docs/sharding.md)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ._runnable import Inputs, Model, Progress, check_symbols, number
from ._tessera import DeviceSpeed, ShardReport
from ._tessera import ShardedModel as _ShardedModel
from ._tessera import shard as _shard


class ShardedModel:
    """A model that is partitioned over a mesh of ranks (docs/sharding.md)."""

    def __init__(self, model: Model, held: _ShardedModel) -> None:
        self._model = model
        self._held = held

    @property
    def report(self) -> ShardReport:
        """Shardings of values, collectives, estimates, and what a search found."""
        return self._held.report

    def run(self, inputs: Inputs, *, evaluate: bool = False) -> dict[str, Any]:
        """Runs all ranks as threads of this process; returns the outputs by name. Inputs are those of Model.run, whole.
        With `evaluate`, ranks compute with the reference evaluator, not with compiled code."""
        data, places = self._model._placed(inputs, None, self._model._output_names)
        found = self._held.run(data, evaluate)
        return {name: places.value(name, datum) for name, datum in zip(self._model._output_names, found)}

    def __repr__(self) -> str:
        return f"<tessera.ShardedModel over {self.report.mesh}>"


def shard_model(model: Model, mesh: str, annotations: Mapping[str, str], sizes: Mapping[str, int], search: bool,
                memory: int | None, speed: DeviceSpeed | None, progress: Progress | None) -> ShardedModel:
    known = check_symbols(sizes, model.inputs)
    limit = None if memory is None else number("memory", memory, 1)
    held = _shard(model._held, mesh, list(annotations.items()), known, search or memory is not None, limit,
                  speed or DeviceSpeed(), progress)
    return ShardedModel(model, held)
