"""Counts the code objects for which a record has no room, after a training with each framework.

Needs the frameworks: pip install transformers accelerate lightning. Trains one step with each one
that is installed, on the CPU, at the default size of a record and at smaller ones.
"""

import importlib.util
import os
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
import harness

SIZES = (4, 2, 1)  # MiB; the first is the default
HEAD = "import oddrank; record = oddrank.arm(); import torch; data = torch.ones(8, 4)\n"
TAIL = """
from oddrank import _native
print(_native.core().trace_snapshot(record.path)["lost"]["codes"])
"""
TRAININGS = {
    "transformers": """
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments
model = GPT2LMHeadModel(GPT2Config(n_layer=1, n_embd=32, n_head=2, vocab_size=50, n_positions=8))
rows = [{"input_ids": data[0].long(), "labels": data[0].long()}] * 8
arguments = TrainingArguments(max_steps=1, use_cpu=True, report_to=[], output_dir="out")
Trainer(model=model, args=arguments, train_dataset=rows).train()
""",
    "lightning": """
import lightning
class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
    def training_step(self, batch, index):
        return self.layer(batch).sum()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)
loader = torch.utils.data.DataLoader(data)
lightning.Trainer(max_steps=1, accelerator="cpu", logger=False).fit(Module(), loader)
""",
    "accelerate": """
import accelerate
model = torch.nn.Linear(4, 1)
job = accelerate.Accelerator(cpu=True)
model, optimizer = job.prepare(model, torch.optim.SGD(model.parameters(), 0.1))
job.backward(model(data).sum())
optimizer.step()
""",
    "deepspeed": "import deepspeed",
    "ray": "import ray.train",
    "torch.compile": """
model = torch.compile(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.GELU()))
model(data).sum().backward()
""",
}


def lost(training: str, megabytes: int) -> int:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        done = subprocess.run(
            [sys.executable, "-c", HEAD + training + TAIL],
            env={
                **os.environ,
                "ODDRANK_DIR": f"{folder}/records",
                "ODDRANK_TRACE_MB": str(megabytes),
            },
            cwd=folder,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            timeout=900,
        )
    return int(done.stdout.split()[-1])


def main() -> None:
    arguments = harness.parser(__doc__ or "", default_repetitions=1).parse_args()
    rows = []
    for framework, training in TRAININGS.items():
        if importlib.util.find_spec(framework.partition(".")[0]) is None:
            continue
        row: dict[str, object] = {"framework": framework}
        row |= {f"lost_of_{size}_MiB": lost(training, size) for size in SIZES}
        rows.append(row)
    harness.report("lost codes", rows, arguments.json)


if __name__ == "__main__":
    main()
