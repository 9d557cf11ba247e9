"""Ranks print long lines at the same time, and no lines mix.

torchrun --nproc-per-node 8 print_from_ranks.py
"""

import oddrank

# Every print and logging line of this process stays whole, with host and rank in front.
oddrank.install_printing(print=True, logging=True, prefix="[{host}:{rank}] ")

for step in range(3):
    print(f"step {step} " + "loss 1.234 " * 20)
