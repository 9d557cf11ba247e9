"""Ranks print long lines at once and none is mixed.

torchrun --nproc-per-node 8 print_from_ranks.py
"""

import oddrank

# Every print and every logging line of this process goes out whole, with the rank in front.
oddrank.install(print=True, logging=True, prefix="[{host}:{rank}] ")

for step in range(3):
    print(f"step {step} " + "loss 1.234 " * 20)
