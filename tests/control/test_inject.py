"""Faults for tests: read from one variable, fired at their stage and step, put into results."""

from unittest.mock import Mock, patch

from bench.told import refusal
from inject import Injector, parse


def injector(faults, stage="s"):
    made = Injector(parse(faults))
    made.enter(stage)
    return made


def test_a_fault_that_is_malformed_is_one_clear_line(golden):
    said = [refusal(parse, text) for text in (
        "kill", "burn:rank=1,stage=s", "kill:rank=1", "kill:rank=x,stage=s",
        "kill:rank=1,stage=s,seconds=2", "late:rank=1,stage=s,seconds=-1",
        "jitter:rank=1,stage=s,share=1.5",
    )]  # fmt: skip
    golden("\n".join(said))


def test_a_fault_fires_at_its_stage_or_step_of_its_rank():
    for fault, stage, steps, fires in (
        ("raise:rank=0,stage=s", "s", (), True),
        ("raise:rank=0,stage=s", "t", ("s",), False),
        ("raise:rank=1,stage=s", "s", (), False),
        ("kill:rank=1,stage=s; raise:rank=0,stage=s,step=64 MiB", "s", ("64 MiB",), True),
        ("raise:rank=0,stage=s,step=64", "s", (), False),
        ("raise:rank=0,stage=s,step=64", "s", ("32 MiB", "64 MiB"), True),
        ("raise:rank=0,stage=s,step=64", "s", ("640 MiB",), False),
        ("raise:rank=0,stage=t,step=64", "s", ("64 MiB",), False),
    ):
        made, fired = Injector.of(0, {"ODDRANK_INJECT": fault}), False
        try:
            made.enter(stage)
            for step in steps:
                made.progress(step)
        except RuntimeError:
            fired = True
        assert fired is fires, (fault, stage, steps)
        assert made.has("raise") == (f"raise:rank=0,stage={stage}" in fault)
        assert not made.has("kill")


def test_a_number_or_each_one_of_a_list_is_scaled_and_a_value_is_set_as_json_or_as_text():
    scale = "scale:rank=0,stage=s,name="
    for fault, measured, said in (
        (f"{scale}copy,by=0.5", {"copy": [4.0, 2.0], "read": 1.0}, {"copy": [2.0, 1.0], "read": 1}),
        (f"{scale}copy.us,by=2", {"copy": {"us": 3}}, {"copy": {"us": 6.0}}),
        ("set:rank=0,stage=s,name=fact,value=2.13", {"fact": "mine"}, {"fact": 2.13}),
        ("set:rank=0,stage=s,name=fact,value=node7", {"fact": "mine"}, {"fact": "node7"}),
        ("set:rank=0,stage=s,name=fact,value=null", {"fact": "mine"}, {"fact": None}),
        ("scale:rank=0,stage=t,name=copy,by=0.5", {"copy": 4.0}, {"copy": 4.0}),
    ):
        assert injector(fault).said(measured) == said, fault


def delays_of(fault, timestamps):
    """Returns the timestamps that a fault delays, and by how many seconds."""
    slept = []
    native = Mock(count=4, dropped=7)
    made = injector(fault).timestamps(native)
    with patch("time.sleep", lambda seconds: slept.append((native.enter.call_count, seconds))):
        for _ in range(timestamps):
            made.enter()
            made.leave()
    assert (native.enter.call_count, native.leave.call_count) == (timestamps, timestamps)
    for name in ("count", "dropped", "starts", "durations"):
        assert getattr(made, name) is getattr(native, name)
    return slept


def test_late_delays_all_timestamps_and_jitter_a_share_the_same_ones_in_every_run():
    fault = "jitter:rank=3,stage=s,seconds=0.01,share=0.2"
    first = delays_of(fault, 1000)
    assert 150 < len(first) < 250
    assert delays_of(fault, 1000) == first
    assert delays_of(fault.replace("0.2", "0"), 100) == []
    late = delays_of("late:rank=3,stage=s,seconds=0.5", 9)
    assert late == [(number, 0.5) for number in range(9)]
    native = Mock()
    for other in ("late:rank=3,stage=t", "value:rank=3,stage=s", "late:rank=3,stage=s,step=x"):
        assert injector(other).timestamps(native) is native
