"""Eight ranks with four DataLoader workers each: ARMED (0 or 1); prints what the ranks computed."""

import os
import sys

import torch
from torch.utils.data import DataLoader, Dataset

import oddrank

RANKS, WORKERS, BATCHES = 8, 4, 12


class Rows(Dataset):
    def __len__(self):
        return 8 * BATCHES

    def __getitem__(self, i):
        return torch.full((1 << 13,), float(i))  # a batch of 256 KiB goes through /dev/shm


def rank(number, armed, out):
    os.environ.update(RANK=str(number), LOCAL_RANK=str(number), WORLD_SIZE=str(RANKS))
    if armed:
        oddrank.arm()
    total = 0.0
    for step, batch in enumerate(DataLoader(Rows(), batch_size=8, num_workers=WORKERS)):
        oddrank.step(step)
        total += batch.sum().item()
    os.write(out, f"{number} {total}\n".encode())


def main():
    armed = sys.argv[1] == "1"
    torch.set_num_threads(1)
    read, write = os.pipe()
    children = []
    for number in range(RANKS):
        child = os.fork()
        if child == 0:
            rank(number, armed, write)
            os._exit(0)
        children.append(child)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    os.close(write)
    with os.fdopen(read) as said:
        print(codes, sorted(said.read().splitlines()))


main()
