"""`oddrank logs first-error`: order, folding, cascades, and what is honestly not known."""

import os
import sys

import pytest

from logs.logs_command import oddrank, output, report, shown, stamp, written
from processes import held_port
from texts import texts


def raised(rank, text="ValueError: boom", prefix="[rank{}]: ", line=9):
    start = prefix.format(rank)
    return [f"{start}Traceback (most recent call last):",
            f'{start}  File "train.py", line {line}, in step', f"{start}{text}"]  # fmt: skip


LOST = "RuntimeError: [/pytorch/gloo/pair.cc:1] Connection closed by peer [10.0.0.{}]:1234"


def lost(*ranks, prefix="[rank{}]: "):
    """Ranks that lost a peer."""
    return [line for rank in ranks for line in raised(rank, LOST.format(rank), prefix, line=12)]


def at(second, *more):
    """Returns the prefix of lines with a time: of a rank, in whole seconds unless more is given."""
    return f"[rank{{}}]: 2026-01-01 00:00:{second:02}{''.join(more)} "


def of_ranks(texts, ends):
    """Logs of ranks: times in their lines, none in their tracebacks."""
    return {
        f"rank_{rank}.log": [f"{stamp(end)} ERROR failed", *raised(rank, text, "")]
        for rank, (text, end) in enumerate(zip(texts, ends, strict=True))
    }


CASCADE = ["[rank0]: WARNING low disk", *raised(2), *lost(0, 1, 3)]
FOUR = of_ranks(["KeyError: 1"] * 4, (9, 9.1, 9.2, 9.3))
TAGGED = [
    "[1,0]<stdout>:step 7[1,1]<stderr>:Traceback (most recent call last):",
    '[1,1]<stderr>:  File "train.py", line 9, in step',
    "[1,0]<stdout>:",
    "[1,1]<stderr>:ValueError: boom",
]
# Logs by their names; the exit code, the order, and (kind, ranks) of what was said.
ROWS = {
    "a cascade":
        ({"job.log": CASCADE}, 1, "line", [("own", [2]), ("lost", [0, 1, 3])]),
    "a hundred equal failures":
        ({"job.log": [line for rank in range(100) for line in raised(rank)]}, 1, "line",
         [("own", list(range(100)))]),
    "two logs with times":
        ({"rank_0.log": raised(0, LOST.format(1), f"{stamp(9)} "),
          "rank_1.log": raised(1, prefix=f"{stamp(5)} ")}, 1, "time",
         [("own", [1]), ("lost", [0])]),
    "two logs without times":
        ({f"rank_{rank}.log": raised(rank, error, "")
          for rank, error in enumerate(("ValueError: a", "KeyError: 'b'"))}, 1, "unknown",
         [("own", [0]), ("own", [1])]),
    "two logs with times, but for their tracebacks":
        (of_ranks([LOST.format(1), "ValueError: boom"], (8.9, 9)), 1, "unknown",
         [("own", [1]), ("lost", [0])]),
    "an interrupt, and the peers that it cost":
        ({"job.log": [*lost(0, 2, prefix=at(7, ",900")),
                      *raised(1, "KeyboardInterrupt", at(7))]}, 1, "time",
         [("interrupted", [1]), ("lost", [0, 2])]),
    "ranks that were interrupted after an error":
        ({f"rank_{rank}.log": raised(rank, error, "")
          for rank, error in enumerate(("ValueError: a", *2 * ["KeyboardInterrupt"]))}, 1,
         "unknown", [("own", [0]), ("interrupted", [1, 2])]),
    "equal failures of four logs":
        ({**FOUR, "rank_4.log": ["quiet"]}, 1, "line", [("own", [0, 1, 2, 3])]),
    "no failure": ({"job.log": [f"[rank0]: step {step}" for step in range(9)]}, 0, "line", []),
    "a traceback behind what another rank wrote": ({"job.log": TAGGED}, 1, "line", [("own", [1])]),
    "a hostile line":
        ({"job.log": raised(3, "ValueError: \x1b[2J\x1b]0;x\x07\u202e\x9b31m")}, 1, "line",
         [("own", [3])]),
    "more failures than are listed":
        ({"job.log": [line for n in range(40) for line in raised(n, f"{n * 'A'}Error: x")]}, 1,
         "line", [("own", [n]) for n in range(40)]),
}  # fmt: skip
# Within a second: the times of a cause and of the others, and which is listed first.
EXACT = {
    (at(7), at(7)): "own",
    (at(7, ",900"), at(7)): "own",  # the others' second is the same, and they may be later
    (at(7), at(7, ",100")): "own",
    (at(7), at(7, ",900")): "own",
    (at(8), at(7)): "lost",
    (at(8, ",000"), at(7)): "lost",
    (at(7, ",900"), at(7, ",100")): "lost",
    (at(7, ",100"), at(7, ",100")): "own",
}
for (cause, others), first in EXACT.items():
    both = [("own", [2]), ("lost", [0, 1])]
    ROWS[f"a cause at {cause[10:]}and others at {others[10:]}"] = (
        {"job.log": [*lost(0, 1, prefix=others), *raised(2, prefix=cause)]}, 1, "time",
        both if first == "own" else both[::-1],
    )  # fmt: skip


def test_what_failed_is_listed_in_an_order_that_puts_causes_before_consequences(tmp_path, golden):
    listed, wrong = [], []
    for number, (name, (logs, code, order, expected)) in enumerate(ROWS.items()):
        folder = tmp_path / str(number)
        folder.mkdir()
        for log, lines in logs.items():
            written(folder / log, *lines)
        data = report("first-error", folder, check=code)["data"]
        made = [(said["kind"], said["ranks"]) for said in data["said"]]
        if (data["order"], made) != (order, expected):
            wrong.append(f"{name}: {data['order']} {made}, not {order} {expected}")
        text = shown(oddrank("first-error", folder, check=code), folder)
        assert all(c.isprintable() or c == "\n" for c in text), name
        listed.append(f"{name}\n{text}")
    assert not wrong, "\n".join(wrong)
    golden("\n".join(listed))


@pytest.mark.needs("samples")
def test_a_real_watchdogs_victims_are_not_called_the_cause(samples):
    sample = samples / "watchdog_logs" / "nemo_rl_ray_prefixed_pg_rank_trap.log"
    made = report("first-error", sample, check=1)
    assert {said["kind"] for said in made["data"]["said"]} & {"waited", "own"}
    assert made["verdict"] in ("odd", "unknown")


JOB = texts(__file__)["job"]
ALONE = texts(__file__)["alone"]


@pytest.mark.job
@pytest.mark.needs("torch")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("how", ["raises", "hangs"])
def test_torchruns_tee_tells_who_failed_first(tmp_path, how):
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "3", "--tee",
                "3"]  # fmt: skip
    log = output(tmp_path, torchrun, how, script=JOB, env={**os.environ, "OMP_NUM_THREADS": "1"})
    made = report("first-error", log, check=1)
    failures = made["data"]["said"]
    named = {rank for f in made["findings"] if f["confidence"]["level"] != "low"
             for rank in f["who"]["ranks"]}  # fmt: skip
    if how == "raises":
        assert (failures[0]["kind"], failures[0]["ranks"]) == ("own", [1]), log.read_text()
        assert named == {1}
    else:  # victims speak first, and nobody else is called the cause
        assert failures[0]["kind"] in ("waited", "lost"), log.read_text()
        assert 1 not in failures[0]["ranks"]
        assert named <= {1}


@pytest.mark.job
@pytest.mark.needs("mpi")
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_mpiruns_tagged_output_tells_who_failed_first(tmp_path, unbuffered):
    mpirun = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--tag-output", "-n", "3",
              sys.executable]  # fmt: skip
    log = output(tmp_path, mpirun, script=ALONE,
                 env={**os.environ, "PYTHONUNBUFFERED": unbuffered})  # fmt: skip
    made = report("first-error", log, check=1)
    assert made["findings"][0]["who"]["ranks"] == [2]


OF_MPI = texts(__file__)["of mpi"]


@pytest.mark.job
@pytest.mark.needs("mpi", "torch")
@pytest.mark.timeout(300)
def test_mpiruns_whole_seconds_put_the_cause_before_the_lost_peers(tmp_path):
    mpirun = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--tag-output",
              "--timestamp-output", "-n", "3", sys.executable]  # fmt: skip
    with held_port() as port:
        world = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
        log = output(tmp_path, mpirun, "raises", script=OF_MPI + JOB, env={**os.environ, **world})
    data = report("first-error", log, check=1)["data"]
    failures = data["said"]
    assert data["order"] == "time", log.read_text()
    assert (failures[0]["kind"], failures[0]["ranks"]) == ("own", [1]), log.read_text()


@pytest.mark.job
@pytest.mark.needs("slurm", "netns")
def test_sruns_labels_tell_who_failed_first(slurm, tmp_path):
    srun = [*slurm.inside(0), "srun", "-N", "2", "--ntasks-per-node", "2", "--label",
            "--kill-on-bad-exit=1", sys.executable]  # fmt: skip
    log = output(tmp_path, srun, script=ALONE, env=slurm.environ(os.environ))
    made = report("first-error", log, check=1)
    assert made["findings"][0]["who"]["ranks"] == [2]
