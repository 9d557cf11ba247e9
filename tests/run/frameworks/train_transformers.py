"""A training with transformers' Trainer: see goes_wrong.py."""

import os

import torch
from goes_wrong import BATCH, FOLDER, STEPS, WORKERS, Rows, comes_to, ended, model
from transformers import Trainer, TrainerCallback, TrainingArguments


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = model()

    def forward(self, rows):
        comes_to("step")
        return {"loss": self.layers(rows).square().mean()}


class Callback(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        comes_to("callback")


arguments = TrainingArguments(
    output_dir=f"{FOLDER}/saved", max_steps=STEPS, per_device_train_batch_size=BATCH, use_cpu=True,
    report_to=[], save_strategy="no", logging_steps=2, dataloader_num_workers=WORKERS,
)  # fmt: skip
Trainer(
    Model(), arguments, train_dataset=Rows(), callbacks=[Callback()],
    data_collator=lambda rows: {"rows": torch.stack(rows)},
).train()  # fmt: skip
ended(os.environ["RANK"])
