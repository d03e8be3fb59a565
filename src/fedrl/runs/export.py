"""A trained policy as one ONNX file, which runs on a device without JAX and without us."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedrl.errors import FedrlError
from fedrl.families import ControlFamily
from fedrl.files import write_atomically
from fedrl.learners.networks import MLP
from fedrl.learners.personalisation import FURTHEST, SMALLEST_VARIANCE, Model

if TYPE_CHECKING:
    from fedrl.runs.run import Run

# Understood by runtimes of some years; nothing newer is needed.
OPSET, IR = 17, 8
OBSERVATION, ACTION = "observation", "action"


def export(run: "Run", path: str | Path, *, agent: int | None = None, seed: int = 0) -> Path:
    """Write the greedy policy of a finished run: observations (batch, size) in, actions out.

    Actions are numbers from 0 on, or vectors in [-1, 1] as our families have them.
    """
    try:
        import onnx
    except ImportError:
        raise FedrlError(
            "exporting a policy needs the package onnx: pip install 'fedrl[export]'"
        ) from None
    helper, kinds = onnx.helper, onnx.TensorProto
    learner, family = run.experiment.learner, run.experiment.family
    model, last = learner.acting(run.model(agent, seed))
    graph = _Graph(onnx)
    graph.finish(graph.of_model(model), last, family)
    given = helper.make_tensor_value_info(
        OBSERVATION, kinds.FLOAT, ["batch", family.observation_size]
    )
    taken = (
        helper.make_tensor_value_info(ACTION, kinds.FLOAT, ["batch", family.actions])
        if family.continuous
        else helper.make_tensor_value_info(ACTION, kinds.INT64, ["batch"])
    )
    made = helper.make_model(
        helper.make_graph(graph.nodes, "policy", [given], [taken], graph.constants),
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR,
        producer_name="fedrl",
        doc_string=f"{run.experiment.name}-{run.experiment.digest}, seed {seed}"
        + ("" if agent is None else f", agent {agent}"),
    )
    onnx.checker.check_model(made, full_check=True)
    target = Path(path)
    if target.exists():
        raise FedrlError(f"{target} exists: name another file")
    try:
        write_atomically(target, made.SerializeToString())
    except OSError as error:
        raise FedrlError(f"cannot write {target}: {error.strerror}") from None
    return target


class _Graph:
    """Nodes and constants, as they are added one after the other."""

    def __init__(self, onnx: Any) -> None:
        self._onnx = onnx
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def of_model(self, model: Model) -> str:
        """What the network says about the observation; the name of the value."""
        x = OBSERVATION
        if (seen := model.view.normaliser) is not None and float(seen.count) > 1:
            deviation = np.sqrt(np.asarray(seen.variance) + SMALLEST_VARIANCE)
            x = self._add("Div", self._add("Sub", x, seen.mean), deviation)
            x = self._add("Clip", x, -FURTHEST, FURTHEST)
        network = model.network
        if type(network) is not MLP:
            raise FedrlError(
                f"only networks of fedrl.learners.MLP can be exported, and this one is "
                f"{type(network).__name__}: with jax2onnx or the like you can export `run.policy()`"
            )
        for number, layer in enumerate(network.layers):
            weight, bias = np.asarray(layer.weight), np.asarray(layer.bias)
            weight = weight.T if layer.outputs_first else weight
            if number == 0 and (embedding := model.view.embedding) is not None:
                # The embedding never changes: what it adds is part of the bias.
                own = np.asarray(embedding)
                bias = bias + own @ weight[: own.size]
                weight = weight[own.size :]
            x = self._add("Add", self._add("MatMul", x, weight), bias)
            if number < len(network.layers) - 1:
                x = self._add("Relu", x)
        return x

    def finish(self, outputs: str, last: str, family: ControlFamily) -> None:
        """From the network's outputs to the action that the environment wants."""
        if last == "argmax":
            x = self._add("ArgMax", outputs, axis=1, keepdims=0, select_last_index=0)
            if family.first_action:
                x = self._add("Add", x, family.first_action, constant=np.int64)
        elif last == "tanh":
            x = self._add("Tanh", outputs)
        else:
            x = self._add("Clip", outputs, -1, 1)
        if family.action_bounds is not None:
            low, high = family.action_bounds
            x = self._add("Add", self._add("Mul", x, (high - low) / 2), (high + low) / 2)
        self.nodes.append(self._onnx.helper.make_node("Identity", [x], [ACTION]))

    def _add(self, kind: str, *inputs: Any, constant: Any = np.float32, **attributes: Any) -> str:
        """A node; its inputs are names of values, or numbers that become constants."""
        names = []
        for x in inputs:
            if not isinstance(x, str):
                value, x = np.asarray(x, constant), f"constant{len(self.constants)}"
                self.constants.append(self._onnx.numpy_helper.from_array(value, x))
            names.append(x)
        name = f"{kind.lower()}{len(self.nodes)}"
        self.nodes.append(self._onnx.helper.make_node(kind, names, [name], **attributes))
        return name
