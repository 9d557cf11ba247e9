"""A training with Lightning, whose Trainer may start the other rank itself: see goes_wrong.py."""

import lightning
import torch
from goes_wrong import FOLDER, STEPS, comes_to, ended, loader, model


class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = model()

    def training_step(self, batch, index):
        comes_to("step")
        return self.layers(batch).square().mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.01)


class Callback(lightning.Callback):
    def on_train_batch_end(self, *arguments):
        comes_to("callback")


trainer = lightning.Trainer(
    accelerator="cpu", devices=2, strategy="ddp", max_steps=STEPS, callbacks=[Callback()],
    logger=False, enable_checkpointing=False, default_root_dir=FOLDER,
)  # fmt: skip
trainer.fit(Module(), loader())
ended(trainer.global_rank)
