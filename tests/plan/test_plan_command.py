"""`oddrank plan` prints a short table, writes the JSON, and refuses bad input in one line."""

from pathlib import Path

import pytest

from processes import typed
from reports import valid

SHAPE = "--layers 96 --hidden 12288 --heads 96 --seq 2048"


def told(line):
    """Runs `oddrank plan LINE`; returns what it prints and its JSON's data."""
    shown = typed("plan", *line.split())
    assert shown.returncode == 0, shown.stderr
    report = valid(typed("plan", *line.split(), "--json", "-").stdout)
    assert report["tool"] == f"plan {line.split()[0]}"
    return shown.stdout, report["data"]


def value(data, key):
    return data["results"][key]["value"]


def test_the_speed_of_a_run_with_its_mfu_and_hfu():
    """The handbook's 52 billion parameters on 64 GPUs: 107.33 TFLOP/s."""
    line = "flops --params 52B --seq 2048 --gbs 1024 --seconds 127 --gpus 64 --recompute"
    shown, data = told(f"{line} --gpu a100")
    assert value(data, "hardware_tflops") == pytest.approx(107.33, abs=0.01)
    assert value(data, "hfu") == pytest.approx(34.4, abs=0.01)
    assert value(data, "mfu") == pytest.approx(25.8, abs=0.01)
    assert "without attention: give --layers and --hidden" in " ".join(shown.split())
    assert "dense" in shown
    # Llama 3 405B: over 128k tokens attention is more than the rest.
    long = "flops --params 405B --seq 131072 --gbs 1024 --seconds 300 --gpus 8192"
    shaped = " --layers 126 --hidden 16384"
    for shape, share in (("", 13.4), (shaped, 31.4), (f"{shaped} --causal", 22.4)):
        shown, data = told(f"{long} --peak 989{shape}")
        assert value(data, "mfu") == pytest.approx(share, abs=0.1)
        assert ("without attention" in " ".join(shown.split())) == (not shape)


def test_the_speed_of_a_shape_with_grouped_attention_and_experts():
    run = "--layers 32 --hidden 4096 --vocab 32000 --seq 4096 --gbs 256 --seconds 10 --gpus 64"
    _, data = told(f"flops {run} --heads 32 --kv-heads 8 --ffn 14336 --experts 2 --causal")
    flops = 6 * 12.75e9 + 6 * 32 * 4096 * 4096
    assert value(data, "model_tflops") == pytest.approx(flops * 4096 * 256 / 640e12, rel=1e-3)


def test_the_speed_of_bloom_by_its_layers_and_the_share_of_a_peak_that_is_given():
    shape = "--layers 70 --hidden 14336 --vocab 250880 --seq 2048 --gbs 2048"
    _, data = told(f"flops {shape} --seconds 105.22s --gpus 384 --recompute")
    assert value(data, "hardware_tflops") == pytest.approx(149.02, abs=0.01)
    assert "mfu" not in data["results"]
    _, data = told("mfu --tflops 150 --recompute --peak 312")
    assert value(data, "hfu") / value(data, "mfu") == pytest.approx(4 / 3)


def test_mfu_without_a_speed_shows_the_table_of_peaks_or_a_gpus_rows():
    shown, data = told("mfu")
    assert {row["GPU"] for row in data["rows"]} >= {"A100", "H100 SXM", "GB200", "MI300X"}
    assert "halved here" in " ".join(shown.split())
    assert all(f"\n{row['GPU']} " in shown for row in data["rows"])
    for name, rows in {"a100": ["A100"], "h100": ["H100 SXM", "H100 PCIe", "H100 NVL"]}.items():
        shown, data = told(f"mfu --gpu {name}")
        assert [row["GPU"] for row in data["rows"]] == rows
        assert "V100" not in shown


def test_replicas_and_micro_batches_and_tensor_parallelism_over_nodes_is_told():
    _, data = told("dp --gpus 384 --tp 4 --pp 12 --mbs 2 --gbs 784 --gpus-per-node 8")
    assert [value(data, key) for key in ("dp", "microbatches", "nodes")] == [8, 49, 6]
    assert value(data, "gbs_multiple") == 16
    for tp, spans in ((16, True), (6, True), (4, False), (8, False)):
        done = typed("plan", *f"dp --gpus 48 --tp {tp} --gpus-per-node 8".split())
        assert ("keep TP inside a node" in done.stderr) == spans
    for number in ("1.005K", "1005", "1_005", "1.005e3", "0.001005M"):  # exact
        _, data = told(f"dp --gpus {number} --mbs {number}")
        assert value(data, "gbs_multiple") == 1005**2


def test_memory_by_stage_and_of_activations():
    _, data = told("memory --params 7.5B --dp 64")
    together = [row["together GiB"] * 2**30 / 1e9 for row in data["rows"]]
    assert together == pytest.approx([120, 31.4, 16.6, 1.9], abs=0.05)
    _, data = told(f"memory --params 175B --tp 8 --pp 8 {SHAPE} --sequence-parallel")
    full, selective = (value(data, f"activations_{kind}") for kind in ("full", "selective"))
    assert selective / full == pytest.approx(34 / 2)


def test_checkpoints():
    shown, data = told("ckpt --save 40 --mtbf 168h --seconds 105 --every 100")
    young, daly, own = data["rows"]
    assert young["iterations"] == pytest.approx(66, abs=1)
    assert daly["lost %"] < own["lost %"] < 1.2 * daly["lost %"]
    assert "Young" in shown
    _, data = told("ckpt --save 40 --mtbf 4704h --nodes 28")
    assert data["rows"][0]["interval s"] == pytest.approx(young["interval s"])
    assert value(data, "training") == pytest.approx(100 - daly["lost %"])
    assert "hardly" not in shown


def test_failures_are_days_or_years_apart_and_a_job_that_fails_faster_than_it_saves_is_told():
    for mtbf in ("7d", "168h", "604800", "10080m"):
        assert value(told(f"ckpt --save 40 --mtbf {mtbf}")[1], "mtbf") == 168
    assert value(told("ckpt --save 40 --mtbf 5y --nodes 5")[1], "mtbf") == 365 * 24
    for line in ("--save 1 --mtbf 2 --restart 1e9", "--save 40s --mtbf 30s"):
        shown, data = told(f"ckpt {line}")
        assert "the job makes hardly any progress" in shown
        assert value(data, "training") < 15


def test_a_wrong_option_and_what_cannot_be_are_one_line_with_what_can(golden):
    said = []
    for line in Path(__file__).with_name("data").joinpath("refused.txt").read_text().splitlines():
        done = typed("plan", *line.split())
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), line
        said.append(f"{line}\n  {done.stderr}")
    golden("".join(said))
