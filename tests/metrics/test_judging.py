"""Simulated trainings: healthy ones say nothing, faults are found, and each kind by itself."""

import math
import random

import pytest

from metrics.training_log import Fault, Training, check, judged, kinds, line, series, stamp, told
from oddrank.metrics import findings, report

# Seeds whose jobs are quiet enough for the fault to be seen: benchmarks/metrics/detection.py has
# the shares over all kinds of jobs.
HEALTHY = range(40)
STEP = "elapsed time per iteration (ms)"


@pytest.mark.parametrize("seed", HEALTHY)
def test_a_healthy_training_has_no_finding_and_follow_says_nothing(seed):
    suspects = judged(Training(seed).text()).suspects()
    assert [s for s in suspects if s["kind"] != "restart" or s["count"] > 0] == []


@pytest.mark.parametrize(
    ("fault", "cause"),
    [(Fault("spike", 2.0), "loss-spike"), (Fault("drop", 0.2), "slower"),
     (Fault("stall", 60), "stall"), (Fault("nan", 3), "nan-loss")],
    ids=lambda value: value if isinstance(value, str) else value.kind,
)  # fmt: skip
def test_a_fault_is_found_and_nothing_else(fault, cause):
    for seed in (3, 4, 5):
        training = Training(seed, fault, rows=1200)
        training.form, training.lengths, training.outliers = "megatron", 0.0, 0.0
        assert kinds(training.text()) == [cause]


@pytest.mark.parametrize("seed", range(20))
def test_a_healthy_series_is_healthy_and_a_fault_in_one_is_found_where_it_began(seed):
    for is_loss in (True, False):
        assert kinds(series.healthy(seed, is_loss=is_loss, rows=1500).text()) == []
    sick = series.sick(seed)
    said = [one for one in judged(sick.text()).suspects() if one["fired"] > sick.at]
    assert len(said) == (0 if seed == 17 else 1), sick  # a spike in an epoch's first rows
    for one in said:
        assert one["kind"] in (("loss-spike", "loss-rise") if sick.is_loss else ("slower",))
        assert abs(one["first"] - sick.at - 1) <= (128 if sick.fault == "drift" else 16)
        assert one["known"] <= one["first"]


def slowly(rows, factor):
    """Returns how much of a fault each row of a log has that begins after 500 rows."""
    return [1 + (factor - 1) * max(0, n - 500) / (rows - 500) for n in range(1, rows + 1)]


@pytest.mark.parametrize(
    ("grown", "cause"),
    [(slowly(2000, 7 / 3), "loss-rise"), (slowly(5500, 2.0), "slower"),
     (slowly(2500, 1 / 0.7), "slower"), ([1.0] * 59 + [1.3] * 640, "slower"),
     ([1.0] * 19 + [2.0] * 27, "slower"), ([1.0] * 19 + [3.0] * 27, "loss-spike")],
    ids=["loss-slowly", "to-half", "to-70-percent", "after-59-rows", "in-46-rows", "loss-46-rows"],
)  # fmt: skip
def test_slow_and_early_changes_are_found_and_their_rows_counted(grown, cause):
    chance = random.Random(1)
    began = next(n for n, factor in enumerate(grown) if factor > 1)
    noise = [math.exp(chance.gauss(0, 0.01)) * factor for factor in grown]
    slow = cause == "slower"
    (one,) = judged(
        line(n, 3.0 if slow else 3 * x, **{STEP: 1000 * x if slow else 1000.0})
        for n, x in enumerate(noise, 1)
    ).suspects()
    assert one["kind"] == cause
    assert abs(one["first"] - began) <= 256
    assert abs(one["count"] - (len(grown) - began)) <= 256
    assert one["known"] <= one["first"]
    if began < 60:
        assert (one["first"], one["count"]) == (began + 1, len(grown) - began)


def test_losses_below_0_are_judged_on_a_linear_scale():
    chance = random.Random(1)
    log = [line(n, (2.5 if 400 <= n < 410 else -0.5) + chance.gauss(0, 0.1)) for n in range(1, 601)]
    (one,) = judged(log).suspects()
    assert (one["kind"], one["first"], one["until"], one["count"]) == ("loss-spike", 400, 410, 10)
    assert -0.6 < one["level"] < -0.4
    assert 2.3 < one["value"] < 2.9


def bars(steps):
    """Returns HF Trainer's lines with their bars. steps: seconds of an iteration, a row of ten."""
    now, log = 0.0, []
    for n, step in enumerate(steps, 1):
        now += 10 * step
        clock = f"{int(now // 3600)}:{int(now // 60) % 60:02d}:{int(now) % 60:02d}"
        bar = f"{n}%|## | {10 * n}/{10 * len(steps)} [{clock}<9:59:59,  1.87s/it]"
        log.append(f"\r {bar}{{'loss': {2.5 + n % 3 / 100}, 'epoch': 0.1}}")
    return log


def test_a_drop_that_only_the_clock_shows_is_placed_where_it_began():
    for steps, first in (([2] * 400 + [20] * 200, 4000), ([2] * 80 + [4] * 40, 800)):
        (one,) = judged(bars(steps)).suspects()
        assert one["kind"] == "slower"
        assert abs(one["first"] - first) <= 20


def quiet(rows=400, **fields):
    return [line(n, 2.5 + 0.01 * (n % 7), grad_norm=0.5 + 0.01 * (n % 5), **fields)
            for n in range(1, rows + 1)]  # fmt: skip


def skipped(first, last, scale):
    return [line(n, None, loss_scale=2.0 ** (scale - n), number_of_skipped_iterations=1)
            for n in range(first, last)]  # fmt: skip


def pairs(of_detector):
    return [text for pair in zip(quiet(), [of_detector] * 400, strict=True) for text in pair]


def of_rank(n, rank, odd=None):
    loss = 7.5 if odd == (n, rank) else 7.2
    return f"[rank{rank}]:[titan] step:  {n}  loss:  {loss}  memory: 1GiB(1%)  tps: 5,000"


def paused(every, pause, sign=""):
    """Returns a log of 10 s an iteration, with a pause after each `every` iterations."""
    log = []
    for n in range(1, 600):
        if n % every == 0 and sign:
            log.append(sign)
        log.append(line(n, time=stamp(10 * n + pause * (n // every))))
    return log


NAN = [*quiet(), line(401, "NAN"), line(402, "inf")]
NAN_GRAD = [*quiet(), *(line(n, grad_norm="nan") for n in range(401, 422))]
SKIPS = quiet(number_of_skipped_iterations=0) + skipped(401, 412, 420)
ZEROS = [line(n, 0.0) for n in range(401, 441)]
SLOW = "0: INFO: | MnEtpt/Rnk: 250.02TF/5 | MxEtpt/Rnk: 297.32TF/8"
AGAIN = [line(n, time=stamp(10 * n)) for n in range(1, 171)]
AGAIN += [line(n, time=stamp(3600 + 10 * n)) for n in range(101, 300)]
DROP = [1000.0 + n % 5 for n in range(1, 500)]
DROP[320:325] = [1200.0] * 5


def test_each_fault_of_a_log_is_a_finding_and_its_end_is_said(golden):
    check(golden, {
        "a loss scale that halves at the start": (skipped(1, 15, 33) + quiet()[14:],),
        "iterations skipped one after another": (SKIPS, "skipped"),
        "skipped, and then done":
            ([*SKIPS, line(412, number_of_skipped_iterations=0)], "skipped"),
        "a NaN": (NAN, "nan-loss"),
        "a NaN that ends": ([*NAN, line(403)], "nan-loss"),
        "a grad norm that stays NaN": (NAN_GRAD, "nan-grad"),
        "and is a number again": ([*NAN_GRAD, line(422)], "nan-grad"),
        "a loss of exactly 0": (quiet() + ZEROS, "zero-loss"),
        "for two rows": (quiet() + ZEROS[:2],),
        "that was learned": ([line(n, 2.0 * 0.97**n) for n in range(1, 300)]
                             + [line(n, 0.0) for n in range(300, 400)],),
        "that comes now and then": ([line(n, 0.3 if n % 10 < 8 else 0.0) for n in range(1, 300)]
                                    + [line(n, 0.0) for n in range(300, 305)],),
        "a slow rank of Megatron's detector": (pairs(SLOW), "straggler"),
        "ranks that share the time": (pairs(SLOW.replace("250.02", "292.02")),),
        "a detector without a number": (pairs(SLOW.replace("297.32TF", "what")),),
        "a rank with another loss":
            ([of_rank(n, r, odd=(60, 2)) for n in range(1, 80) for r in range(4)], "disagree"),
        "a restart": (AGAIN, "restart"),
        "two restarts": (AGAIN + [line(n, time=stamp(9000 + 10 * n)) for n in range(250, 400)],
                         "restart"),
        "a pause": (paused(313, 2400), "stall"),
        "pauses that repeat": (paused(100, 900),),
        "pauses at checkpoints": (paused(100, 900, "saving checkpoint at iteration"),),
        "many pauses": (paused(37, 200),),
        "a drop that is soon over":
            ([line(n, **{"elapsed time per iteration (ms)": step})
              for n, step in enumerate(DROP, 1)],),
    })  # fmt: skip


def test_what_a_restart_has_lost_is_counted():
    figures = judged(AGAIN).figures()
    assert figures["lost_iterations"] == 70
    # From 10 * 170 to 3600 + 10 * 101 seconds, less one iteration; and 70 iterations again.
    assert figures["lost_seconds"] == pytest.approx(3600 + 1010 - 1700 - 10 + 700)
    good = report.made(judged(AGAIN), ["log"]).data["goodput"]
    assert good["lost_s"] == {"restarts": 2900, "iterations done again": 700}
    assert good["total_s"] == 1 + 3600 + 2990 - 10  # the first row has its stated time
    assert good["share"] == pytest.approx(1 - 3600 / 6581)
    ((_, _, rows),) = report.spent(report.made(judged(AGAIN), ["log"]))
    assert list(rows) == [
        ("progress", "45%", "49.7 min", "#" * 18), ("restarts", "44%", "48.3 min", "#" * 18),
        ("iterations done again", "11%", "11.7 min", "#" * 4),
    ]  # fmt: skip
    assert report.spent(report.made(judged(quiet()), ["log"])) == []


def test_stalls_pauses_and_slow_iterations_are_no_goodput():
    def lost(log):
        return report.made(judged(log), ["log"]).data["goodput"]["lost_s"]

    assert lost(paused(313, 2400)) == {"stalls": 2400}
    assert lost(paused(100, 900, "saving checkpoint at iteration")) == {"pauses": 5 * 900}
    late = [line(n, time=stamp(10 * n + 10 * max(0, n - 200)),
                 **{STEP: 1e4 if n <= 200 else 2e4}) for n in range(1, 401)]  # fmt: skip
    assert lost(late) == {"slow iterations": pytest.approx(2000, rel=0.05)}
    slow_start = [line(n, time=stamp(10 * n + (600 if n > 1 else 0))) for n in range(1, 100)]
    assert lost(slow_start) == {"start-up": pytest.approx(600, abs=20)}


def titan(first, last, tps=1000):
    return [f"step: {n}  loss:  {2.5 + n % 3 / 100}  tps: {tps + n % 5}"
            for n in range(first, last)]  # fmt: skip


def test_what_was_not_judged_is_said():
    for log, verdict, said in (
        (quiet() + [line(n, None) for n in range(401, 601)], "incomplete",
         "no loss in the last 200 of them"),
        (titan(1, 300) + [f"step: {n}  loss:  2.5" for n in range(300, 400)], "incomplete",
         "no throughput in the last 100 of them"),
        ([*titan(1, 300), "Resuming training from x", *titan(300, 400, tps=500)], "healthy",
         "throughput right after a restart was 50% of that right before it, which is not judged"),
        ([*titan(1, 300), "Resuming training from x", *titan(300, 400)], "healthy", ""),
        ([text for n in range(1, 400) for text in
          (line(n, None), *([line(n)] if n % 50 == 0 else []))], "healthy", ""),
    ):  # fmt: skip
        made = report.made(judged(log), ["log"])
        assert made.verdict == verdict
        assert said in made.why
        assert said or not any(word in made.why for word in ("no loss", "GPUs")), made.why


def stepped(*parts, every=1):
    """Returns lines of iterations. parts: first and last one, and seconds of each."""
    return [line(n, loss + n % 3 / 100, **{STEP: 1000 * seconds * (1 + n * 7 % 11 / 2000)})
            for loss, (first, last, seconds) in zip((2.5, 2.501, 2.501), parts, strict=True)
            for n in range(first, last, every)]  # fmt: skip


@pytest.mark.parametrize(("parts", "every"), [
    ([(1, 1711, 4), (1001, 3000, 4), (3000, 4000, 6)], 1),  # long after the restart
    ([(1, 171, 4), (101, 300, 4), (300, 600, 8)], 1),
    ([(10, 180, 4), (100, 300, 4), (300, 600, 8)], 10),  # few rows after it
])  # fmt: skip
def test_a_drop_in_a_run_is_a_finding_and_is_not_held_against_its_start(parts, every):
    made = report.made(judged(stepped(*parts, every=every)), ["log"])
    what = {each.cause: each.what for each in made.findings}
    assert what.keys() == {"slower", "restart"}
    assert f"at iteration {parts[-1][0]} " in what["slower"]
    assert "GPUs" not in made.why


def test_losses_of_ranks_that_differ_by_design_are_judged_by_their_mean():
    def ranks(n, loss):
        return [f"[rank{rank}]: step: {n}  loss:  {2.5 + rank / 10 + (loss if rank == 3 else 0)}"
                for rank in range(4)]  # fmt: skip

    log = [text for n in range(1, 400) for text in ranks(n, 8 if 300 <= n < 330 else n % 3 / 100)]
    (one,) = judged(log).suspects()
    assert (one["kind"], one["first"], round(one["level"], 1)) == ("loss-spike", 300, 2.7)


def test_the_last_line_is_no_row_of_its_own():
    """Of HF Trainer it has means of all; of a log that is still written it is half a line."""
    trainer = [f"{{'loss': {2 + 8 * 0.98**n}, 'epoch': 0.1}}" for n in range(1, 400)]
    assert kinds([*trainer, "{'train_runtime': 9.5, 'train_loss': 4.0, 'epoch': 3.0}"]) == []
    small = [f"step: {n}  loss:  9.8{n % 7}E-01" for n in range(1, 400)]
    assert kinds("\n".join([*small, "step: 400  loss:  9.8"])) == []


SUSPECT = {
    "file": 0, "line": 7, "ranks": [], "first": 410.0, "at": 412.0, "fired": 411.0, "until": None,
    "level": 2.5, "value": 5.098124, "share": 0.0512, "count": 12.0, "known": 400.0,
    "seconds": 1500.0, "shape": "spike",
}  # fmt: skip
LITTLE = {"count": 1.0, "known": 60.0, "seconds": 0.0, "level": None, "value": None}
MORE = {"surely": {}, "with little": LITTLE, "over": {"until": 420.0}, "of two": {"ranks": [3, 4]},
        "slowly": {"shape": "drift"}}  # fmt: skip


def test_every_sentence_can_be_made_with_little_and_with_much(golden):
    said = []
    for kind in (*findings._TABLE, "restart"):
        for name, more in MORE.items():
            if (
                kind not in ("loss-spike", "slower", "skipped", "disagree")
                and name == "with little"
            ):
                continue  # they word it as one of these, or have all numbers
            if kind != "disagree" and name == "of two":  # others name one rank, or none
                continue
            if kind not in ("loss-rise", "slower") and name == "slowly":
                continue
            ranks = [3] if kind == "straggler" else []
            suspect = {**SUSPECT, "kind": kind, "ranks": ranks, **more}
            made = findings.one(suspect, ["a.log"], "TFLOPs")
            said.append(f"{kind} {name}\n{told([made] if made else [])}")
            if over := findings.is_over(suspect):
                said.append(f"  --follow: {over}\n")
    golden("".join(said))


def test_a_warning_is_part_of_the_spike_that_follows_and_restarts_are_one_finding(golden):
    warned = {**SUSPECT, "kind": "grad-growth"}
    spike = {**SUSPECT, "kind": "loss-spike"}
    again = [{**SUSPECT, "kind": "restart", "first": 100.0 * n, "count": n} for n in range(9)]
    rows = {
        "before a spike": ([warned, spike], ["loss-spike"]),
        "from a spike on": ([{**warned, "first": 412.0}, spike], ["loss-spike"]),
        "over before it": ([{**warned, "until": 411.0}, spike], ["grad-growth", "loss-spike"]),
        "behind it": ([{**warned, "first": 413.0}, spike], ["grad-growth", "loss-spike"]),
        "restarts": ([*again, spike], ["loss-spike", "restart"]),
        "one that lost nothing": (again[:1], []),
        "a drop soon over": ([{**SUSPECT, "kind": "slower", "count": 9, "until": 420.0}], []),
        "a drop that lasted": ([{**SUSPECT, "kind": "slower", "count": 10, "until": 420.0}],
                               ["slower"]),
        "a drop that lasts": ([{**SUSPECT, "kind": "slower", "count": 9}], ["slower"]),
    }  # fmt: skip
    said = []
    for name, (suspects, causes) in rows.items():
        made = findings.findings(suspects, ["a.log"], "TFLOPs")
        assert [one.cause for one in made] == causes, name
        said.append(f"{name}\n{told(made)}")
    golden("\n".join(said))


def test_a_time_is_said_as_people_say_it(golden):
    times = (0.85, 105, 179.9, 180, 3599, 7199, 7200, 259_199, 259_200, 1_036_800)
    golden("\n".join(f"{seconds}: {findings.duration(seconds)}" for seconds in times))
