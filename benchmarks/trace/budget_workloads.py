"""Runs one workload of benchmarks/trace/budget.py: WORKLOAD without_a_budget|empty_hook|armed.
Prints the CPU seconds of a round, unarmed and so.

`richards` is the operating system simulation of Martin Richards, in a short form: many small
methods of many classes. `nbody` is lines of arithmetic. `callbacks` is recorded code that the
standard library calls.
"""

import functools
import json
import os
import statistics
import sys
import time
from typing import Any

import oddrank
from oddrank import _native

ROUNDS = 60
ROUND_S = 0.01
WARM_UP_S = 2.0


def fib(n: int = 17) -> int:
    if n < 2:
        return n
    return fib(n - 1) + fib(n - 2)


class Packet:
    def __init__(self, link: "Packet | None", ident: int, kind: int) -> None:
        self.link, self.ident, self.kind = link, ident, kind
        self.datum, self.data = 0, [0] * 4

    def append_to(self, packets: "Packet | None") -> "Packet":
        self.link = None
        if packets is None:
            return self
        last = packets
        while last.link is not None:
            last = last.link
        last.link = self
        return packets


class Task:
    def __init__(self, scheduler: "Scheduler", ident: int) -> None:
        self.scheduler, self.ident = scheduler, ident
        self.input: Packet | None = None
        self.holding = False
        scheduler.tasks.append(self)

    def is_waiting(self) -> bool:
        return self.input is None and not self.is_busy()

    def is_busy(self) -> bool:
        return False

    def take(self) -> Packet | None:
        packet = self.input
        if packet is not None:
            self.input = packet.link
        return packet

    def run(self) -> None:
        raise NotImplementedError


class Idle(Task):
    def __init__(self, scheduler: "Scheduler", ident: int) -> None:
        super().__init__(scheduler, ident)
        self.control, self.left = 1, 300

    def is_busy(self) -> bool:
        return self.left > 0

    def run(self) -> None:
        self.left -= 1
        if self.control & 1:
            self.control = self.control // 2 ^ 0xD008
            self.scheduler.wake(3)
        else:
            self.control //= 2
            self.scheduler.wake(4)


class Worker(Task):
    def run(self) -> None:
        packet = self.take()
        if packet is None:
            return
        for i in range(4):
            packet.data[i] = self.next_letter(i)
        self.scheduler.send(packet, 2)

    def next_letter(self, i: int) -> int:
        return (ord("A") + i * 7) % 26


class Handler(Task):
    def run(self) -> None:
        packet = self.take()
        if packet is None:
            return
        packet.datum = self.sum_of(packet)
        self.scheduler.send(packet, 1 if packet.kind else 3)

    def sum_of(self, packet: Packet) -> int:
        return functools.reduce(self.add, packet.data, 0)

    def add(self, a: int, b: int) -> int:
        return a + b


class Device(Task):
    def __init__(self, scheduler: "Scheduler", ident: int) -> None:
        super().__init__(scheduler, ident)
        self.pending = 0

    def is_busy(self) -> bool:
        return self.pending > 0

    def run(self) -> None:
        packet = self.take()
        if packet is not None:
            self.scheduler.send(packet, 1)
        elif self.pending:
            self.pending -= 1
            self.scheduler.send(Packet(None, self.ident, self.pending & 1), 2)


class Scheduler:
    def __init__(self) -> None:
        self.tasks: list[Task] = []
        self.sent = 0
        self.idle = Idle(self, 0)
        Worker(self, 1)
        Handler(self, 2)
        self.devices = [Device(self, 3), Device(self, 4)]

    def send(self, packet: Packet, ident: int) -> None:
        self.sent += 1
        if self.sent % 9:
            task = self.tasks[ident]
            task.input = packet.append_to(task.input)

    def wake(self, ident: int) -> None:
        self.devices[ident - 3].pending += 1

    def run(self) -> int:
        while self.idle.is_busy():
            for task in self.tasks:
                if not task.is_waiting():
                    task.run()
        return self.sent


def richards() -> int:
    return Scheduler().run()


def nbody(steps: int = 300) -> float:
    bodies = [[float(i), i * 0.5, 0.1 * i, 0.0, 0.0, 0.0, 1.0 + i] for i in range(5)]
    for _ in range(steps):
        for i, a in enumerate(bodies):
            for b in bodies[i + 1 :]:
                dx = a[0] - b[0]
                dy = a[1] - b[1]
                dz = a[2] - b[2]
                distance = (dx * dx + dy * dy + dz * dz + 0.01) ** -1.5 * 0.001
                a[3] -= dx * b[6] * distance
                b[3] += dx * a[6] * distance
                a[4] -= dy * b[6] * distance
                b[4] += dy * a[6] * distance
                a[5] -= dz * b[6] * distance
                b[5] += dz * a[6] * distance
        for body in bodies:
            body[0] += body[3] * 0.001
            body[1] += body[4] * 0.001
            body[2] += body[5] * 0.001
    return bodies[0][0]


def lines(n: int = 15_000) -> int:
    total = 0
    for i in range(n):
        a = i
        b = a
        c = b
        total += c
    return total


def raises(i: int) -> int:
    if i & 1:
        raise ValueError(i)
    return i


def exceptions(n: int = 3000) -> int:
    caught = 0
    for i in range(n):
        try:
            raises(i)
        except ValueError:
            caught += 1
    return caught


def pairs(n: int) -> Any:
    for i in range(n):
        yield i, i + 1


def generators(n: int = 4000) -> int:
    return sum(a * b for a, b in pairs(n))


def dumps() -> str:
    table = {f"row {i}": [i, {"left": None, "right": [i, i + 1]}] for i in range(60)}
    return json.dumps(table, indent=1)  # runs in Python: the C encoder has no indent


def key_of(item: int) -> int:
    return -item % 97


def callbacks() -> list[int]:
    return sorted(range(4000), key=key_of)


WORKLOADS: dict[str, Any] = {
    "fib": fib, "richards": richards, "nbody": nbody, "lines": lines, "exceptions": exceptions,
    "generators": generators, "json": dumps, "callbacks": callbacks,
}  # fmt: skip


def cpu_of(run: Any, times: int) -> float:
    begin = time.process_time()
    for _ in range(times):
        run()
    return time.process_time() - begin


def times_of(run: Any) -> int:
    """Returns how often to run it for a round."""
    times = 1
    while cpu_of(run, times) < ROUND_S:
        times *= 2
    return times


class Unarmed:
    """A fork of this process that stays unarmed and runs a round when asked."""

    def __init__(self, run: Any, times: int) -> None:
        asked, self.ask = os.pipe()
        self.answer, answers = os.pipe()
        if os.fork() == 0:
            os.close(self.ask)
            while os.read(asked, 1):
                os.write(answers, f"{cpu_of(run, times)}\n".encode())
            os._exit(0)
        os.close(asked)

    def cpu(self) -> float:
        os.write(self.ask, b".")
        return float(os.read(self.answer, 100))


def start(how: str) -> str:
    """Returns the record's path; "" if there is none."""
    if how == "empty_hook":
        sys.path.insert(0, os.environ["EMPTY_HOOK"])
        import empty_hook

        empty_hook.start("profile")
        return ""
    return (oddrank.arm(overhead=None) if how == "without_a_budget" else oddrank.arm()).path


def main() -> None:
    run = WORKLOADS[sys.argv[1]]
    times = times_of(run)
    unarmed = Unarmed(run, times)
    path = start(sys.argv[2])
    warm = time.process_time() + WARM_UP_S
    while time.process_time() < warm:
        run()
    # In turns: a slow minute of the machine meets both.
    rounds = [(unarmed.cpu(), cpu_of(run, times)) for _ in range(ROUNDS)]
    before, after = (statistics.median(side) for side in zip(*rounds, strict=True))
    lowered = len(_native.core().trace_snapshot(path)["lowered"]) if path else 0
    print(json.dumps({"unarmed": before, "armed": after, "lowered": lowered}))


if __name__ == "__main__":
    main()
