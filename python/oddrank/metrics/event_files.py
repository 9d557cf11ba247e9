"""The scalars of TensorBoard's event files as lines of JSON, by tensorboard's own reader."""

import json
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from itertools import groupby
from pathlib import Path
from typing import Any


def reader(head: bytes) -> Callable[[Path], Iterator[bytes]] | None:
    """Returns what makes lines of a file that begins so; None for other files."""
    return _lines if b"brain.Event:" in head[:64] else None


def _lines(path: Path) -> Iterator[bytes]:
    for step, scalars in groupby(_scalars(path), key=lambda scalar: scalar[0]):
        found = list(scalars)
        stamp = datetime.fromtimestamp(found[0][1], timezone.utc).isoformat()
        numbers = {tag: number for _, _, tag, number in found}
        yield f"{stamp} {json.dumps({'step': step} | numbers)}\n".encode()


def _scalars(path: Path) -> Iterator[tuple[int, float, str, Any]]:
    """Yields step, time, name and number, in the order of the file."""
    try:
        from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
        from tensorboard.util.tensor_util import make_ndarray
    except ImportError as error:
        raise ImportError(
            "events of TensorBoard take its reader: pip install tensorboard"
        ) from error
    for event in EventFileLoader(str(path)).Load():
        for value in event.summary.value:
            # Megatron-LM writes each number twice, once with samples as its step.
            if value.WhichOneof("value") == "tensor" and not value.tag.endswith(" vs samples"):
                array = make_ndarray(value.tensor)
                if array.size == 1 and array.dtype.kind in "fiu":
                    yield event.step, event.wall_time, value.tag, array.item()
