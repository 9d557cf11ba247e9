"""`oddrank metrics` of several logs of one training, whose times say less than they seem to."""

import json


def test_times_since_the_start_of_a_run_do_not_mix_its_rows_with_those_of_another(
    oddrank, tmp_path
):
    for name, first in (("a.log", 1), ("b.log", 51)):
        (tmp_path / name).write_text("".join(
            f"{{'loss': {2.5 + n % 3 / 100 + first / 1e4}, 'grad_norm': 0.5,"
            f" 'global_step/max_steps': '{n}/500', 'elapsed_time': '{n - first + 1}s'}}\n"
            for n in range(first, first + 60)
        ))  # fmt: skip
    code, shown, _ = oddrank(tmp_path / "a.log", tmp_path / "b.log", "--json", "-")
    (finding,) = json.loads(shown)["findings"]
    assert (code, finding["cause"]) == (1, "restart")
    assert "a restart after iteration 60 cost 10 iterations" in finding["what"]
