"""A training with DeepSpeed's ZeRO: see goes_wrong.py."""

import deepspeed
import torch.distributed as dist
from goes_wrong import BATCH, STEPS, comes_to, ended, loader, model

deepspeed.ops.__compatible_ops__.clear()  # else it compiles one for a minute
deepspeed.init_distributed("gloo")
layers = model()
engine, *_ = deepspeed.initialize(
    model=layers, model_parameters=layers.parameters(),
    config={
        "train_micro_batch_size_per_gpu": BATCH, "zero_optimization": {"stage": 1},
        "optimizer": {"type": "SGD", "params": {"lr": 0.01}}, "zero_force_ds_cpu_optimizer": False,
        "zero_allow_untested_optimizer": True,
    },
)  # fmt: skip
for _, batch in zip(range(STEPS), loader(), strict=False):
    comes_to("step")
    engine.backward(engine(batch).square().mean())
    engine.step()
    comes_to("callback")
ended(dist.get_rank())
dist.destroy_process_group()
