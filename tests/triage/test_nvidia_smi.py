"""`nvidia-smi -q`: faults that are there now, and which process uses which GPU."""

from pathlib import Path

from oddrank.triage.evidence.nvidia_smi import KIND
from oddrank.triage.facts import Identity, Process, Source, Trouble, ranks
from oddrank.triage.judges import devices
from oddrank.triage.view import view
from triage.facts_of import of_kind, reader

log = reader(KIND)
HEAD = """
==============NVSMI LOG==============

Timestamp                                 : Mon Nov 23 12:00:00 2026
Driver Version                            : 570.86.15
CUDA Version                              : 12.8

Attached GPUs                             : 2
"""


TEMPLATE = (Path(__file__).with_name("data") / "nvidia_smi.txt").read_text()


def gpu(bus="9B", pid=4711, **values):
    told = {
        "recovery": "None", "brake": "Not Active", "heat": "Not Active", "volatile": "0",
        "aggregate": "3", "pending": "No", "failure": "No", "state": "Completed",
        "status": "Success", "bandwidth": "Full", **values,
    }  # fmt: skip
    return TEMPLATE.format(bus=bus, pid=pid, **told)


LOST = (
    "Unable to determine the device handle for GPU0: 0000:9B:00.0: GPU is lost.  Reboot the system"
    " to recover this GPU\n"
)


def test_a_healthy_gpu_has_processes_and_no_trouble(log):
    facts = log.facts(HEAD + gpu(aggregate="99") + gpu("DB", 4712))  # 99: in its whole life
    assert of_kind(facts, Trouble) == []
    assert [(f.process.pid, f.gpu, f.gpu_index) for f in of_kind(facts, Identity)] == [
        (4711, "0000:9b:00", 0), (4712, "0000:db:00", 1),
    ]  # fmt: skip
    odd = log.facts(HEAD + gpu("DB", pid="\N{SUPERSCRIPT TWO}"))
    assert of_kind(odd, Identity) == []


def test_faults_of_now_are_troubles_of_that_gpu(log, golden):
    said = []
    for values, kind, fatal in (
        ({"recovery": "Reset"}, "gpu", True), ({"recovery": "Drain and Reset"}, "gpu", True),
        ({"brake": "Active"}, "power", False), ({"heat": "Active"}, "thermal", False),
        ({"volatile": "2"}, "ecc", True), ({"pending": "Yes"}, "ecc", False),
        ({"failure": "Yes"}, "gpu", True), ({"state": "In Progress"}, "nvlink", True),
        ({"status": "Timed out"}, "nvlink", True), ({"bandwidth": "Degraded"}, "nvlink", False),
        (LOST, "gpu", True),
    ):  # fmt: skip
        text = values if values is LOST else HEAD + gpu("DB") + gpu(**values)
        (found,) = of_kind(log.facts(text), Trouble)
        assert (found.kind, found.device, found.fatal) == (kind, "GPU 0000:9b:00", fatal), values
        said.append(f"{values}\n  {found.text}" if values is not LOST else found.text)
    golden("\n".join(said))


def test_the_process_on_the_gpu_ties_it_to_a_rank(log):
    facts = log.facts(HEAD + gpu(recovery="Reset"))
    known = Identity(Process(5, "n1", 4711), Source("log"))
    (suspect,) = devices.judge(view([*facts, known]))
    assert ranks(suspect.processes) == (5,)
