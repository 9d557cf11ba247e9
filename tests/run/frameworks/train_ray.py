"""A training in Ray Train's workers, which arm themselves: see goes_wrong.py."""

import os

import ray
from goes_wrong import FOLDER
from ray.train import ScalingConfig
from ray.train.torch import TorchTrainer, prepare_model


def loop():
    if "ARM" in os.environ:
        import oddrank

        how = os.environ["ARM"]
        oddrank.arm(watch=True, stall=3, json=f"{FOLDER}/report.json", on_stall=how)
    from goes_wrong import model, trains

    trains(prepare_model(model()))


ray.init(num_cpus=2, include_dashboard=False, object_store_memory=80 << 20)
TorchTrainer(loop, scaling_config=ScalingConfig(num_workers=2)).fit()
