"""Lines of torch's watchdogs: real logs. test_read.py has each line."""

import pytest

from oddrank.triage.evidence.watchdog import KIND
from oddrank.triage.facts import Progress
from triage.facts_of import facts_of, item_of, of_kind


@pytest.mark.needs("samples")
def test_the_samples_are_about_global_rank_9_and_a_job_without_timeouts(samples):
    path = samples / "watchdog_logs" / "nemo_rl_ray_prefixed_pg_rank_trap.log"
    found = [fact for fact in of_kind(facts_of(KIND, path), Progress) if fact.timed_out]
    assert {f.process.rank for f in found} == {9}
    assert {f.group.text: (f.open[0].seq, f.open_count) for f in found} == {
        "TENSOR_MODEL_PARALLEL_GROUP": (49387, 20),
        "EXPERT_MODEL_PARALLEL_GROUP": (52229, 30),
    }
    assert not KIND.sniff(item_of(samples / "megatron_logs" / "meg_gpt2_perf_n16.out"))
