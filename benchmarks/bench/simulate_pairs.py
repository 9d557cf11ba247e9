"""Simulates how often the judge of `bench pairs` is right.

python benchmarks/bench/simulate_pairs.py --json benchmarks/results/bench_pairs_simulated.json

Worlds of 2 to 64 ranks, healthy or with one fault; measurement and recheck as in the command. Every
repeat has the noise, one in ten takes up to five times as long, and every pass over a pair has
further noise of the same size that lasts as long as the pass.
"""

import argparse
import json
import sys
from collections import Counter
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
import simulated_links as links

KINDS = ("sender", "receiver", "both", "link", "way")


def outcome(members: int, noise: float, kind: str, seed: int, given: argparse.Namespace) -> str:
    """Returns right, wrong, missed, or unknown: no rank named, and the judge said that it can't."""
    random = Random(f"{members} {noise} {kind} {given.by} {given.lasting} {seed}")
    ends = tuple(random.sample(range(members), 2 if kind in ("link", "way") else 1))
    world = links.Links(members, noise, random, heavy=True, lasting=given.lasting * noise)
    if kind != "healthy":
        world.slow = getattr(links, kind)(*ends, given.by)
    first = links.first_measurement(world)
    found = [part.touched() for part in links.recheck(world, first)]
    if kind == "healthy":
        return "wrong" if found else "right"
    if members == 2:  # both are named, with the link
        ends = (0, 1)
    if found:
        return "right" if found == [set(ends)] else "wrong"
    told = first.suspects or first.uneven or first.smallest() > given.by
    return "unknown" if told else "missed"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--members", type=int, nargs="+", default=[2, 3, 4, 8, 16, 64])
    parser.add_argument("--noise", type=float, nargs="+", default=[0.01, 0.03, 0.1])
    parser.add_argument("--by", type=float, default=0.3)
    parser.add_argument(
        "--lasting", type=float, default=1.0, help="of a pass, in noises of a repeat"
    )
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    rows = []
    for members in given.members:
        for noise in given.noise:
            for kind in ("healthy", *KINDS):
                if members == 2 and kind in ("both", "link"):
                    continue  # both ways alike: nothing to compare with
                runs = given.runs if members < 64 else max(10, given.runs // 10)
                seen = Counter(outcome(members, noise, kind, seed, given) for seed in range(runs))
                rows.append({"ranks": members, "noise": noise, "kind": kind, "runs": runs, **seen})
                print(rows[-1], flush=True)
    if given.json:
        given.json.write_text(
            json.dumps({"slower_by": given.by, "lasting": given.lasting, "rows": rows}, indent=1)
            + "\n"
        )


if __name__ == "__main__":
    main()
