"""`nvidia-smi -q`: faults that are there now, and which process uses which GPU."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oddrank.triage.evidence import Item, Notes
from oddrank.triage.evidence.nvidia_smi import KIND
from oddrank.triage.facts import Identity, Process, Source, Trouble, ranks
from oddrank.triage.judges import devices
from oddrank.triage.view import view
from triage.facts_of import Texts, item_of


@pytest.fixture
def log(tmp_path):
    return Texts(tmp_path, KIND)


HEAD = """
==============NVSMI LOG==============

Timestamp                                 : Mon Nov 23 12:00:00 2026
Driver Version                            : 570.86.15
CUDA Version                              : 12.8

Attached GPUs                             : 2
"""


def gpu(bus="9B", pid=4711, **values):
    told = {
        "recovery": "None", "brake": "Not Active", "heat": "Not Active", "volatile": "0",
        "aggregate": "3", "pending": "No", "failure": "No", "state": "Completed",
        "status": "Success", "bandwidth": "Full", **values,
    }  # fmt: skip
    return f"""GPU 00000000:{bus}:00.0
    Product Name                          : NVIDIA H200
    GPU Recovery Action                   : {told["recovery"]}
    Clocks Event Reasons
        Idle                              : Not Active
        HW Slowdown                       : Not Active
            HW Thermal Slowdown           : {told["heat"]}
            HW Power Brake Slowdown       : {told["brake"]}
        SW Thermal Slowdown               : Not Active
    ECC Errors
        Volatile
            SRAM Correctable              : 7
            SRAM Uncorrectable Parity     : 0
            DRAM Uncorrectable            : {told["volatile"]}
        Aggregate
            DRAM Uncorrectable            : {told["aggregate"]}
    Remapped Rows
        Correctable Error                 : 0
        Pending                           : {told["pending"]}
        Remapping Failure Occurred        : {told["failure"]}
    Temperature
        GPU Current Temp                  : 35 C
    Fabric
        State                             : {told["state"]}
        Status                            : {told["status"]}
        Health
            Bandwidth                     : {told["bandwidth"]}
    Processes
        GPU instance ID                   : N/A
        Compute instance ID               : N/A
        Process ID                        : {pid}
            Type                          : C
            Name                          : python3
"""


def troubles(facts):
    return [(f.kind, f.device, f.fatal) for f in facts if isinstance(f, Trouble)]


def test_a_healthy_gpu_has_processes_and_no_trouble(log):
    facts = log.facts(HEAD + gpu() + gpu("DB", 4712))
    assert troubles(facts) == []
    assert [(f.process.pid, f.gpu, f.gpu_index) for f in facts if isinstance(f, Identity)] == [
        (4711, "0000:9b:00", 0), (4712, "0000:db:00", 1),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("values", "kind", "fatal"),
    [
        ({"recovery": "Reset"}, "gpu", True),
        ({"recovery": "Drain and Reset"}, "gpu", True),
        ({"brake": "Active"}, "power", False),
        ({"heat": "Active"}, "thermal", False),
        ({"volatile": "2"}, "ecc", True),
        ({"pending": "Yes"}, "ecc", False),
        ({"failure": "Yes"}, "gpu", True),
        ({"state": "In Progress"}, "nvlink", True),
        ({"status": "Timed out"}, "nvlink", True),
        ({"bandwidth": "Degraded"}, "nvlink", False),
    ],
)
def test_faults_of_now_are_troubles_of_that_gpu(log, values, kind, fatal):
    facts = log.facts(HEAD + gpu() + gpu("DB", **values))
    assert troubles(facts) == [(kind, "GPU 0000:db:00", fatal)]


def test_errors_of_its_whole_life_do_not_count(log):
    assert troubles(log.facts(HEAD + gpu(aggregate="99"))) == []


def test_a_lost_gpu_is_fatal(log):
    facts = log.facts(
        "Unable to determine the device handle for GPU0: 0000:9B:00.0: GPU is lost.  Reboot the "
        "system to recover this GPU\n"
    )
    assert troubles(facts) == [("gpu", "GPU 0000:9b:00", True)]


def test_the_process_on_the_gpu_ties_it_to_a_rank(log):
    facts = log.facts(HEAD + gpu(recovery="Reset"))
    known = Identity(Process(5, "n1", 4711), Source("log"))
    (suspect,) = devices.judge(view([*facts, known]))
    assert ranks(suspect.processes) == (5,)


@given(st.lists(st.sampled_from([*gpu().splitlines(keepends=True), HEAD, " " * 9, ":", "\n"])
                | st.text(max_size=9), max_size=40))  # fmt: skip
def test_garbage_never_raises(tmp_path_factory, pieces):
    path = tmp_path_factory.mktemp("garbage") / "smi"
    content = (HEAD + "".join(pieces)).encode(errors="replace")
    path.write_bytes(content)
    item = Item("smi", path, len(content), content)
    KIND.sniff(item)
    list(KIND.read([item], Notes()))


def test_a_log_that_only_has_some_of_the_words_is_not_of_this_kind(tmp_path):
    path = tmp_path / "train.log"
    path.write_text("RuntimeError: GPU is lost\n")
    assert not KIND.sniff(item_of(path))


def test_an_odd_digit_is_no_pid(log):
    facts = log.facts(HEAD + gpu("DB", pid="\N{SUPERSCRIPT TWO}"))
    assert not [f for f in facts if isinstance(f, Identity)]
