"""Shows the stacks of all processes as one tree: common frames once, and ranks at each branch."""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set

from oddrank.page import Branch, Tree, short_chain
from oddrank.triage import causes, leaves
from oddrank.triage.facts import Frame, Stack, Thread
from oddrank.triage.judges.stacks import who
from oddrank.triage.judges.stands import of_thread

Row = tuple[int, tuple[str, ...], Set[int]]


def tree(stacks: Sequence[Stack]) -> Tree | None:
    """Returns the stacks as a tree; None if no thread of Python's is at work in them.

    Inside libraries of communication only the call is shown.
    """
    processes = list(dict.fromkeys(t.process for stack in stacks for t in stack.threads))
    numbers = {process: number for number, process in enumerate(processes)}
    paths: dict[tuple[str, ...], set[int]] = defaultdict(set)
    idle = 0
    for stack in stacks:
        for thread in stack.threads:
            if thread.name != "MainThread" and leaves.is_helper(thread.name, stack.frames):
                idle += 1
                continue
            paths[_path(thread, stack.frames)].add(numbers[thread.process])
    if not paths:
        return None
    branches = [
        Branch(depth, who([processes[number] for number in own]), len(own), frames)
        for depth, frames, own in rows(paths)
    ]
    threads = f"{idle} thread{'s' if idle > 1 else ''}"
    remark = f"left out: {threads} without frames of Python, or waiting for work"
    title = f"stacks of {len(numbers)} process{'es' if len(numbers) != 1 else ''}"
    return Tree(title, tuple(branches), (remark,) if idle else ())


def rows(paths: Mapping[tuple[str, ...], Set[int]]) -> Iterator[Row]:
    """Yields depth, frames that lead to no branch and the ranks there, the rarest branch first.

    paths: frames from the outermost on -> the ranks that end there.
    """
    nodes: list[tuple[dict[str, int], set[int]]] = [({}, set())]  # children; ranks that end there
    for path, own in paths.items():
        at = 0
        for frame in path:
            at = nodes[at][0].setdefault(frame, len(nodes))
            if at == len(nodes):
                nodes.append(({}, set()))
        nodes[at][1].update(own)
    below: list[Set[int]] = [ends for _, ends in nodes]
    for at, (children, ends) in reversed([*enumerate(nodes)]):  # children come behind their parents
        sets = [below[child] for child in children.values()]
        below[at] = sets[0] if len(sets) == 1 and not ends else ends.union(*sets)

    def branches(at: int, depth: int) -> list[tuple[int, int, str]]:
        found = ((depth, child, frame) for frame, child in nodes[at][0].items())
        return sorted(found, key=lambda node: (-len(below[node[1]]), -node[1]))

    left = branches(0, 0)
    while left:
        depth, at, frame = left.pop()
        frames = [frame]
        while len(nodes[at][0]) == 1 and not nodes[at][1]:
            ((frame, at),) = nodes[at][0].items()
            frames.append(frame)
        yield depth, tuple(frames), below[at]
        left += branches(at, depth + 1)


def lines(stacks: Sequence[Stack]) -> Iterator[str]:
    """Yields the lines of the tree; of a long chain of frames only the ends."""
    made = tree(stacks)
    if made is None:
        return
    yield made.title
    for branch in made.branches:
        many = f" ({branch.count})" if branch.count > 1 else ""
        frames = " > ".join(short_chain(branch.frames))
        yield f"{'  ' * branch.depth}{branch.members}{many}: {frames}"
    yield from made.remarks


def _path(thread: Thread, frames: tuple[Frame, ...]) -> tuple[str, ...]:
    """Returns a stack from its outermost frame on, cut at the call of a library."""
    stand = of_thread(thread.process, thread, frames)
    leaf = stand.leaf
    kept = [leaves.text(frame) for frame in frames[leaf.cut :][::-1]]
    kind = stand.kind if stand.kind == "leaving" else stand.told
    word = causes.words_for(causes.DOING.get(kind, ""), is_one=True)
    if leaf.kind == "peers" and leaf.op and leaf.op not in kept[-1]:
        word = f"{leaf.op}: {word}"
    if word:
        kept[-1] += f" [{word}]"
    if thread.name and thread.name != "MainThread":
        kept.insert(0, f"thread {re.sub(r'[0-9]+', 'N', thread.name)}")
    return tuple(kept)
