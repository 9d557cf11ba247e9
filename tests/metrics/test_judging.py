"""Simulated trainings: healthy ones say nothing, faults are found, and each kind by itself."""

import pytest

from metrics.training_log import Fault, Training, found, judged, kinds, line

# Seeds whose jobs are quiet enough for the fault to be seen: benchmarks/metrics/detection.py has
# the shares over all kinds of jobs.
HEALTHY = range(40)


@pytest.mark.parametrize("seed", HEALTHY)
def test_a_healthy_training_has_no_finding_and_follow_says_nothing(seed):
    suspects = judged(Training(seed).text()).suspects()
    assert [s for s in suspects if s["kind"] != "restart" or s["count"] > 0] == []


def quiet(rows=400, **fields):
    return [line(n, 2.5 + 0.01 * (n % 7), grad_norm=0.5 + 0.01 * (n % 5), **fields)
            for n in range(1, rows + 1)]  # fmt: skip


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


def test_a_loss_scale_that_halves_at_the_start_is_healthy():
    start = [line(n, None, loss_scale=2.0 ** (33 - n), number_of_skipped_iterations=1)
             for n in range(1, 15)]  # fmt: skip
    assert kinds(start + quiet()[14:]) == []


def test_iterations_skipped_one_after_another_are_a_finding():
    end = [line(n, None, loss_scale=2.0 ** (420 - n), number_of_skipped_iterations=1)
           for n in range(401, 412)]  # fmt: skip
    log = quiet(number_of_skipped_iterations=0) + end
    (finding,) = found(log)
    assert (finding.cause, finding.condition) == ("skipped", "broken")
    assert finding.what == (
        "11 iterations one after another were skipped, said at iteration 408; none after them was"
        " done"
    )
    (finding,) = found([*log, line(412, number_of_skipped_iterations=0)])
    assert finding.what.endswith("; iteration 412 was not skipped")


def test_a_nan_is_a_finding_and_its_end_is_said():
    log = [*quiet(), line(401, "NAN"), line(402, "inf"), line(403)]
    (finding,) = found(log)
    assert finding.what == (
        "the loss is NaN or infinite from iteration 401 on (2 iterations), and was a number again"
        " at iteration 403"
    )


def test_a_grad_norm_that_stays_nan_counts_all_its_rows():
    log = [*quiet(), *(line(n, grad_norm="nan") for n in range(401, 422))]
    (finding,) = found(log)
    assert finding.what == (
        "the grad norm is NaN or infinite in 21 rows one after another, from iteration 401 to 421,"
        " and did not become a number again"
    )
    (finding,) = found([*log, line(422)])
    assert finding.what.endswith("and was a number again at iteration 422")


def test_a_loss_that_falls_to_exactly_0_is_a_finding():
    zeros = [line(n, 0.0) for n in range(401, 441)]
    (finding,) = found(quiet() + zeros)
    assert (finding.cause, finding.condition) == ("zero-loss", "broken")
    assert finding.what == (
        "the loss is exactly 0 from iteration 401 on (40 rows), after 2.51, and has not come back"
    )
    assert kinds(quiet() + zeros[:2]) == []


def test_a_loss_of_0_is_healthy_where_it_was_learned_or_comes_now_and_then():
    learned = [line(n, 2.0 * 0.97**n) for n in range(1, 300)]
    assert kinds(learned + [line(n, 0.0) for n in range(300, 400)]) == []
    fine = [line(n, 0.3 if n % 10 < 8 else 0.0) for n in range(1, 300)]
    assert kinds(fine + [line(n, 0.0) for n in range(300, 305)]) == []


def test_a_slow_rank_of_megatrons_detector_is_named():
    slow = "0: INFO: | MnEtpt/Rnk: 250.02TF/5 | MxEtpt/Rnk: 297.32TF/8"
    log = [text for pair in zip(quiet(), [slow] * 400, strict=True) for text in pair]
    (finding,) = found(log)
    assert (finding.cause, finding.who.ranks) == ("straggler", (5,))
    shared = slow.replace("250.02", "292.02")
    assert kinds([t for pair in zip(quiet(), [shared] * 400, strict=True) for t in pair]) == []


def test_a_rank_that_becomes_slow_is_found_where_lines_have_the_ranks_times():
    def step(n, slowest):
        return f"iter={n} loss=2.5 dtf/max={0.01 * slowest:.6f} dtf/min={0.0100 + n % 3 * 1e-4:.6f}"

    healthy = [step(n, 1.05) for n in range(1, 301)]
    (finding,) = found(healthy + [step(n, 1.4) for n in range(301, 401)])
    assert (finding.cause, finding.condition) == ("spread", "slow")
    assert finding.what == (
        "a rank has become slow: since iteration 301 the slowest one takes 1.39 times as long as"
        " the fastest, before 1.04 times"
    )
    assert kinds(healthy + [step(301, 3.0)] + [step(n, 1.05) for n in range(302, 402)]) == []
    assert kinds([step(n, 1.4) for n in range(1, 401)]) == []


def test_a_spread_counts_anew_after_a_restart():
    """The ranks may be on other nodes."""

    def steps(first, last, slowest):
        return [f"iter={n} loss=2.5 dtf/max={0.01 * slowest:.6f} dtf/min={0.01 + n % 3 * 1e-4:.6f}"
                for n in range(first, last)]  # fmt: skip

    before = [*steps(1, 311, 1.05), "loading checkpoint from /shared/run17"]
    assert "spread" not in kinds([*before, *steps(251, 400, 1.4)])
    assert "spread" in kinds([*before, *steps(251, 400, 1.05), *steps(400, 450, 1.4)])


def test_a_rank_with_another_loss_is_named():
    def step(n, rank):
        loss = 7.5 if (n, rank) == (60, 2) else 7.2
        return f"[rank{rank}]:[titan] step:  {n}  loss:  {loss}  memory: 1GiB(1%)  tps: 5,000"

    (finding,) = found([step(n, rank) for n in range(1, 80) for rank in range(4)])
    assert (finding.cause, finding.condition) == ("disagree", "different")
    assert finding.who.ranks == (2,)


def stamp(seconds):
    hours, rest = divmod(seconds, 3600)
    return f"2026-01-{1 + hours // 24:02d} {hours % 24:02d}:{rest // 60:02d}:{rest % 60:02d}"


def test_what_a_restart_has_lost_is_counted():
    first = [line(n, time=stamp(10 * n)) for n in range(1, 171)]
    again = [line(n, time=stamp(3600 + 10 * n)) for n in range(101, 300)]
    log = first + again
    (finding,) = found(log)
    assert (finding.cause, finding.condition) == ("restart", "dead")
    assert "did 70 iterations again" in finding.what
    figures = judged(log).figures()
    assert figures["lost_iterations"] == 70
    # From 10 * 170 to 3600 + 10 * 101 seconds, less one iteration; and 70 iterations again.
    assert figures["lost_seconds"] == pytest.approx(3600 + 1010 - 1700 - 10 + 700)


def paused(every, pause, sign=""):
    """Returns a log of 10 s an iteration, with a pause after each `every` iterations."""
    log = []
    for n in range(1, 600):
        if n % every == 0 and sign:
            log.append(sign)
        log.append(line(n, time=stamp(10 * n + pause * (n // every))))
    return log


def test_pauses_that_repeat_are_no_stall():
    assert kinds(paused(100, 900)) == []
    assert kinds(paused(100, 900, "saving checkpoint at iteration")) == []
    assert kinds(paused(37, 200)) == []


def test_a_pause_by_itself_is_a_stall():
    (finding,) = found(paused(313, 2400)[:600])
    assert (finding.cause, finding.condition) == ("stall", "late")
    assert "40 min after iteration 312" in finding.what


def test_a_drop_that_is_soon_over_is_no_finding():
    steps = [1000.0 + n % 5 for n in range(1, 500)]
    steps[320:325] = [1200.0] * 5
    log = [line(n, **{"elapsed time per iteration (ms)": step})
           for n, step in enumerate(steps, 1)]  # fmt: skip
    assert [s["kind"] for s in judged(log).suspects()] == ["slower"]
    assert kinds(log) == []
