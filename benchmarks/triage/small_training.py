"""The job of the benchmark of hangs: a small training in tensor, data and pipeline groups of gloo.

torchrun starts it. hang_job.py leads it through the folder $HANGS_CONTROL: config.json, a flag file
for each request, and a progress counter for each rank.
"""

import faulthandler
import json
import mmap
import os
import signal
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d
import training_hooks
from hang_table import Layout
from torch.distributed.elastic.multiprocessing.errors import record
from torch.utils.data import DataLoader

import oddrank

CONTROL = Path(os.environ["HANGS_CONTROL"])
WIDTH = 32
LAYERS = 2
BUCKETS = (2048, 1024, 512)
# Agreed on by all ranks at the end of each step.
GO_ON, FAULT, STOP = 0, 1, 2
# The send or recv in which this rank is.
open_pair: dict[str, Any] | None = None
_dumping = threading.Lock()


class Progress:
    """A counter in a file: hang_job.py sees from it whether this rank still moves."""

    def __init__(self, file: Path) -> None:
        _write(file, bytes(8))  # whole from the first moment: another process reads it
        with file.open("r+b") as opened:
            self._map = mmap.mmap(opened.fileno(), 8)
        self._count = 0

    def tick(self) -> None:
        self._count += 1
        struct.pack_into("Q", self._map, 0, self._count)


class Batches(torch.utils.data.Dataset[torch.Tensor]):
    """Endless batches, which a worker process makes."""

    def __init__(self, rank: int) -> None:
        self.rank = rank

    def __len__(self) -> int:
        return 1 << 40

    def __getitem__(self, index: int) -> torch.Tensor:
        training_hooks.fetch(CONTROL / f"slow_shard{self.rank}")
        return torch.full((WIDTH,), float(index % 7))


class Trainer:
    """One rank. Hooks may change its next action; see training_hooks.py."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.rank, self.config = dist.get_rank(), config
        self.layout = Layout(**config["layout"])
        self.control, self.progress = CONTROL, Progress(CONTROL / f"progress{self.rank}")
        self.tensor = self._group(self.layout.tensor_groups(), "tensor")
        self.data = self._group(self.layout.data_groups(), "data")
        self.pipe = self._group(self.layout.pipelines(), "pipeline")
        everybody = list(range(self.layout.world))
        self.save_group = self._group([everybody], "checkpoint")
        self.flags_group = self._group([everybody], "flags")
        self.weights = [torch.full((WIDTH, WIDTH), 0.01) for _ in range(LAYERS)]
        self.buckets = [torch.ones(size) for size in BUCKETS]
        self.step = 0
        self.over = False
        self.pairs = 0
        self.fault_at: int | None = None
        self.compute_seconds = 0.004
        # A step's collectives on its gradients, in this order.
        self.after_backward: list[Callable[[], object]] = [
            self.reduce_gradients, self.gather_shards, self.reduce_norm,
        ]  # fmt: skip
        self.metrics: dict[str, float] = {}
        self.loader = self._loader()

    def train(self) -> None:
        """Trains until all ranks agree to stop, or a hook ends it."""
        while not self.over:
            if self.config["marks"]:
                oddrank.step(self.step)
            self.train_step()
            self.step += 1
        dist.barrier()

    def train_step(self) -> None:
        self.hook("begin")
        if self.over:
            return
        batch = self.next_batch()
        activations = self.forward(batch)
        self.backward(activations)
        for act in self.after_backward:
            act()
        self.log()
        if self.step % 5 == 4:
            self.save_checkpoint()
        self.agree()

    def next_batch(self) -> torch.Tensor:
        self.hook("batch")
        if self.loader is None:
            return torch.full((WIDTH,), float(self.step % 7))
        return next(self.loader)

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        self.hook("forward")
        stages = self.pipe_ranks()
        stage = stages.index(self.rank)
        if stage:
            self.recv(batch, stages[stage - 1])
        for weight in self.weights:
            self.compute()
            batch = torch.mv(weight, batch)
            if self.layout.tp > 1:
                self.reduce(batch, self.tensor)
        if stage + 1 < len(stages):
            self.send(batch, stages[stage + 1])
        return batch

    def backward(self, gradient: torch.Tensor) -> None:
        stages = self.pipe_ranks()
        stage = stages.index(self.rank)
        if stage + 1 < len(stages):
            self.recv(gradient, stages[stage + 1])
        self.compute()
        if stage:
            self.send(gradient, stages[stage - 1])

    def reduce_gradients(self) -> None:
        """Averages the buckets as DDP does: issued one after another, then awaited."""
        if self.layout.dp > 1:
            works = [dist.all_reduce(b, group=self.data, async_op=True) for b in self.buckets]
            for work in works:
                self.progress.tick()
                work.wait()
                self.progress.tick()

    def gather_shards(self) -> None:
        if self.layout.dp > 1:
            shards = [torch.zeros(WIDTH) for _ in range(self.layout.dp)]
            self.progress.tick()
            dist.all_gather(shards, torch.ones(WIDTH), group=self.data)
            self.progress.tick()

    def reduce_norm(self) -> None:
        if self.layout.dp > 1:
            self.reduce(torch.ones(1), self.data)

    def log(self) -> None:
        self.hook("metrics")
        self.metrics["loss"] = 2.0 + 1.0 / (1 + self.step)
        if self.rank == self.layout.world - 1 and self.step % 10 == 0:
            print(f"step {self.step:6} | loss {self.metrics['loss']:.4f}", flush=True)

    def save_checkpoint(self) -> None:
        """Gathers shapes on rank 0, as a checkpoint does before it writes."""
        shapes = [torch.zeros(4) for _ in range(self.layout.world)] if self.rank == 0 else None
        self.progress.tick()
        dist.gather(torch.ones(4), shapes, dst=0, group=self.save_group)
        self.progress.tick()

    def agree(self) -> None:
        """Lets rank 0's wish become everybody's, as jobs do with a stop flag."""
        wish = GO_ON
        if self.rank == 0:
            wish = STOP if (CONTROL / "stop").exists() else FAULT * (CONTROL / "go").exists()
        flags = torch.tensor([wish])
        self.reduce(flags, self.flags_group, dist.ReduceOp.MAX)
        if flags.item() == FAULT and self.fault_at is None:
            self.fault_at = self.step + 1 + self.config["delay"]
        self.over = self.over or flags.item() == STOP

    def hook(self, point: str) -> None:
        """Runs this rank's hook at its step and point."""
        self.progress.tick()
        mine = self.rank in self.config["ranks"] and point == self.config["point"]
        now = self.fault_at is not None and self.step >= self.fault_at
        if mine and now and self.config["act"]:
            act, self.config["act"] = self.config["act"], ""
            (CONTROL / f"acted{self.rank}").touch()
            getattr(training_hooks, act)(self)

    def compute(self) -> None:
        time.sleep(self.compute_seconds)

    def pipe_ranks(self) -> list[int]:
        return next(ranks for ranks in self.layout.pipelines() if self.rank in ranks)

    def reduce(self, values: torch.Tensor, group: Any, op: Any = dist.ReduceOp.SUM) -> None:
        self.progress.tick()
        dist.all_reduce(values, op, group=group)
        self.progress.tick()

    def send(self, values: torch.Tensor, to: int) -> None:
        with self.point_to_point("SEND", values):
            dist.send(values, to, group=self.pipe)

    def recv(self, values: torch.Tensor, source: int) -> None:
        with self.point_to_point("RECV", values):
            dist.recv(values, source, group=self.pipe)

    @contextmanager
    def point_to_point(self, op: str, values: torch.Tensor) -> Iterator[None]:
        """Notes the open send or recv: gloo's flight recorder does not."""
        global open_pair
        self.progress.tick()
        self.pairs += 1
        open_pair = {"op": op, "seq": self.pairs, "numel": values.numel(), "since": time.time()}
        yield
        open_pair = None
        self.progress.tick()

    def _group(self, groups: Sequence[Sequence[int]], name: str) -> Any:
        mine = None
        for ranks in groups:
            made = dist.new_group(list(ranks), group_desc=name)
            mine = made if self.rank in ranks else mine
        return mine

    def _loader(self) -> Any:
        if not self.config["loader"]:
            return None
        return iter(DataLoader(Batches(self.rank), batch_size=None, num_workers=1))


def group_table() -> dict[str, dict[str, str]]:
    """Returns the process groups as NCCL's dumps list them; gloo's dumps lack them."""
    world = c10d._world
    return {
        world.pg_names[group]: {
            "name": world.pg_names[group],
            "desc": group.group_desc,
            "ranks": str(sorted(world.pg_group_ranks[group])),
        }
        for group in list(world.pg_map)
    }


def dump_flight_recorder(config: dict[str, Any], rank: int) -> None:
    """Writes the content of torch's flight recorder, once, as its watchdog does on a timeout."""
    with _dumping:
        if not (CONTROL / "flight_recorder" / f"pickle{rank}").exists():
            _dump(config, rank, CONTROL / "flight_recorder")


def _dump(config: dict[str, Any], rank: int, folder: Path) -> None:
    ours = torch._C._distributed_c10d
    as_json = ours._dump_fr_trace_json() if config["fr_json"] else None
    trace = ours._dump_fr_trace(True, config["fr_frames"], config["fr_only_open"])
    more = {"groups": group_table(), "pair": open_pair, "time": time.time()}
    _write(folder / f"more{rank}", json.dumps(more).encode())
    if as_json is not None:
        text = as_json if isinstance(as_json, bytes) else as_json.encode()
        _write(folder / f"json{rank}", text)
    _write(folder / f"pickle{rank}", trace)


def serve_dumps(config: dict[str, Any], rank: int) -> None:
    """Waits for the request to dump; a thread of its own, as torch's monitor is."""
    while not (CONTROL / "dump").exists():
        time.sleep(0.05)
    dump_flight_recorder(config, rank)


def _write(file: Path, content: bytes) -> None:
    half = file.with_name(file.name + ".half")
    half.write_bytes(content)
    half.replace(file)


@record
def main() -> None:
    config = json.loads((CONTROL / "config.json").read_text())
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    stacks = (CONTROL / "faulthandler" / f"rank{rank}").open("wb")
    faulthandler.register(signal.SIGUSR1, file=stacks, all_threads=True)
    _write(CONTROL / f"pid{rank}", str(os.getpid()).encode())
    threading.Thread(target=serve_dumps, args=(config, rank), daemon=True).start()
    try:
        Trainer(config).train()
    except RuntimeError:  # gloo's: a peer is gone
        dump_flight_recorder(config, rank)
        raise
    dist.destroy_process_group()


if __name__ == "__main__":
    oddrank.arm()
    torch.set_num_threads(1)
    # Else a dump with frames imports this module first: seconds in each rank.
    torch._inductor = None
    main()
