"""`oddrank metrics` of several logs of one training, whose times say less than they seem to."""

import json
import sys

import pytest


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


def test_event_files_of_tensorboard_are_lines_or_one_line_says_what_they_take(
    refused, tmp_path, monkeypatch
):
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    events = tmp_path / "events.out.tfevents.1"
    events.write_bytes(bytes(23) + b"\x1a\rbrain.Event:2")
    assert "left out: events of TensorBoard take its reader: pip install" in refused(events)
    assert "left out: it is binary" in refused(events, "--follow")
    assert "left out: it is binary" in refused(tmp_path)


@pytest.mark.needs("tensorboard")
def test_the_scalars_of_event_files_are_judged(oddrank, tmp_path):
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    writer = EventFileWriter(str(tmp_path))
    for step in range(1, 101):
        loss = 2.5 + step % 3 / 100 if step < 60 else 5.0
        for tag, number in (("train/loss", loss), ("lm loss vs samples", 9.0), ("grad-norm", 0.5)):
            value = Summary.Value(tag=tag, simple_value=number)
            writer.add_event(
                Event(wall_time=1.8e9 + 2 * step, step=step, summary=Summary(value=[value]))
            )
    writer.close()
    (events,) = tmp_path.iterdir()
    code, shown, _ = oddrank(events, "--json", "-")
    said = json.loads(shown)
    assert (code, [one["cause"] for one in said["findings"]]) == (1, ["loss-spike"])
    assert "iteration 60" in said["findings"][0]["what"]
    data = said["data"]
    assert (data["rows"], data["grad_norm"], data["last_time"]) == (100, 0.5, 1.8e9 + 200)
    assert data["iteration_s"] == 2
