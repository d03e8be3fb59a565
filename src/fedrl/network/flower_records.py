"""Our messages as Flower's records: on the network, and on the socket of an agent's worker."""

from dataclasses import fields
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict
from flwr.common.serde import recorddict_from_proto, recorddict_to_proto
from flwr.proto.recorddict_pb2 import RecordDict as Proto

from fedrl.errors import FedrlError
from fedrl.files import Arrays
from fedrl.network.messages import Answer, Instruction, Refusal

MODEL, ASKED, TOLD, ROUND, REFUSED = "model", "asked", "told", "round", "refused"
# What an instruction says beside the model: names and types.
_PLAIN: dict[str, Any] = {one.name: one.type for one in fields(Instruction) if one.name != MODEL}


def asking(instruction: Instruction) -> RecordDict:
    """An instruction on its way to an agent."""
    asked = {name: getattr(instruction, name) for name in _PLAIN}
    return RecordDict({MODEL: _packed(instruction.model), ASKED: ConfigRecord(asked)})


def asked(records: RecordDict) -> Instruction:
    """The instruction that came."""
    try:
        plain = {name: _PLAIN[name](records[ASKED][name]) for name in _PLAIN}
        return Instruction(**plain, model=_unpacked(records))
    except (KeyError, TypeError, ValueError) as error:
        raise FedrlError(f"not an instruction of ours: {error!r}") from None


def telling(answer: Answer | Refusal) -> RecordDict:
    """An answer on its way to the server; a refusal only gets to whoever asked the worker."""
    if isinstance(answer, Refusal):
        return RecordDict({REFUSED: ConfigRecord({REFUSED: answer.reason})})
    return RecordDict(
        {
            MODEL: _packed(answer.shared),
            TOLD: MetricRecord(dict(answer.metrics)),
            ROUND: ConfigRecord({ROUND: answer.round}),
        }
    )


def told(records: RecordDict) -> Answer:
    """The answer that came; whatever an agent may have sent, the only error is ours."""
    try:
        extra = set(records) - {MODEL, TOLD, ROUND}
        if extra:
            raise ValueError(f"unknown records {sorted(extra)}")
        metrics: dict[str, Any] = {str(name): value for name, value in records[TOLD].items()}
        number = records[ROUND][ROUND]
        if not isinstance(number, int):
            raise ValueError(f"round {number!r}")
        return Answer(number, metrics, _unpacked(records))
    except Exception as error:
        raise FedrlError(f"not an answer of ours: {error!r}") from None


def refused(records: RecordDict) -> str | None:
    """Why a worker does not answer; None if it does."""
    return str(records[REFUSED][REFUSED]) if REFUSED in records else None


def to_bytes(records: RecordDict) -> bytes:
    """What Flower puts on the network: no pickles, so that reading cannot run anything."""
    return bytes(recorddict_to_proto(records).SerializeToString())


def from_bytes(content: bytes) -> RecordDict:
    """What `to_bytes` made bytes of."""
    try:
        return recorddict_from_proto(Proto.FromString(content))
    except Exception as error:
        raise FedrlError(f"not a message of ours: {error!r}") from None


def size(records: RecordDict) -> int:
    """Bytes of what is in a message."""
    total = 0
    for name, record in records.items():
        if isinstance(record, ArrayRecord):
            total += sum(len(array.data) + len(key) for key, array in record.items())
        else:
            total += len(name) + sum(len(key) + len(repr(value)) for key, value in record.items())
    return total


def _packed(arrays: Arrays) -> ArrayRecord:
    return ArrayRecord({name: Array(leaf) for name, leaf in arrays.items()})


def _unpacked(records: RecordDict) -> Arrays:
    model = records[MODEL]
    if not isinstance(model, ArrayRecord):
        raise TypeError(f"the model is a {type(model).__name__}")
    arrays = {name: array.numpy() for name, array in model.items()}
    # NumPy reads archives too, and these are no arrays.
    if not all(isinstance(array, np.ndarray) for array in arrays.values()):
        raise TypeError("a leaf is not an array")
    return arrays
