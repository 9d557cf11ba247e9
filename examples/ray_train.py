"""A training of Ray Train whose workers are watched; with --hang one of them stands still.

python ray_train.py --hang

oddrank.arm(watch=True) is the first call of each worker's loop. The verdict is a line on the stderr
of rank 0's worker, which Ray shows, and in the report, on rank 0's node.
"""

import argparse
import time

import ray
import torch
import torch.distributed as dist
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer

HANGS, AT_STEP = 1, 5


def load_shard() -> None:
    time.sleep(1_000_000)


def loop(config: dict) -> None:
    import oddrank

    oddrank.arm(watch=True, stall=10, json=config["report"], on_stall=config["on_stall"])
    for step in range(30):
        oddrank.step(step)
        if config["hang"] and dist.get_rank() == HANGS and step == AT_STEP:
            load_shard()
        dist.all_reduce(torch.ones(3))
        time.sleep(0.1)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("--hang", action="store_true")
    options.add_argument("--workers", type=int, default=2)
    options.add_argument("--report", default="/tmp/oddrank-verdict.json")
    wanted = options.parse_args()
    ray.init(num_cpus=wanted.workers, include_dashboard=False)
    trainer = TorchTrainer(
        loop,
        # kill: a hang ends the workers, and Ray starts them again if it may.
        train_loop_config={"hang": wanted.hang, "report": wanted.report, "on_stall": "kill"},
        scaling_config=ScalingConfig(num_workers=wanted.workers, use_gpu=False),
        run_config=RunConfig(name="oddrank-example"),
    )
    print(trainer.fit())


if __name__ == "__main__":
    main()
