"""A loop of its own with accelerate: see goes_wrong.py."""

import torch
from accelerate import Accelerator
from goes_wrong import STEPS, comes_to, ended, loader, model

job = Accelerator(cpu=True)
layers = model()
optimizer = torch.optim.SGD(layers.parameters(), 0.01)
layers, optimizer, batches = job.prepare(layers, optimizer, loader())
for _, batch in zip(range(STEPS), batches, strict=False):
    comes_to("step")
    job.backward(layers(batch).square().mean())
    optimizer.step()
    optimizer.zero_grad()
    comes_to("callback")
ended(job.process_index)
job.end_training()
