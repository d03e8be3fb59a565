"""What Weights & Biases has written to a run's file on this machine.

The file is a log in LevelDB's format after seven bytes of its own: blocks of 32 KiB, in which a
record is one piece or several, each with a checksum, a length and its place in the record.
"""

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from wandb.proto.wandb_internal_pb2 import Record

HEADER, BLOCK = 7, 2**15
PIECE = struct.Struct("<IHB")
WHOLE, LAST = 1, 4


def histories(file: Path) -> Iterator[tuple[int, dict[str, float]]]:
    """The step and the numbers of everything that was logged."""
    for record in _records(file):
        if record.HasField("history"):
            items = {".".join(x.nested_key) or x.key: x.value_json for x in record.history.item}
            yield record.history.step.num, {name: json.loads(x) for name, x in items.items()}


def ended(file: Path) -> bool:
    """Whether it is written to its end."""
    return any(record.HasField("exit") for record in _records(file))


def _records(file: Path) -> Iterator[Any]:
    """Whole records; what a kill has cut off at the end is left out."""
    content = file.read_bytes()
    place, pieces = HEADER, b""
    while place + PIECE.size <= len(content):
        left = BLOCK - place % BLOCK
        if left < PIECE.size:  # filled up with zeros
            place += left
            continue
        _, length, kind = PIECE.unpack_from(content, place)
        place += PIECE.size + length
        if place > len(content):
            return
        pieces += content[place - length : place]
        if kind in (WHOLE, LAST):
            yield Record.FromString(pieces)
            pieces = b""
