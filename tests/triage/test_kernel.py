"""Kernel logs: faults of devices are folded facts, and the kernel's victims are deaths."""

import os
from datetime import datetime, timezone

import pytest

from oddrank.triage.evidence.kernel import KIND
from oddrank.triage.facts import Death, State, Trouble
from triage.facts_of import facts_of, of_kind, reader

log = reader(KIND)
XID = "NVRM: Xid (PCI:0000:9b:00): 79, pid=4711, name=python3, GPU has fallen off the bus.\n"
NOON = datetime(2025, 2, 23, 12, 0, tzinfo=timezone.utc).timestamp()


def one(facts, kind=Trouble):
    (found,) = of_kind(facts, kind)
    return found


@pytest.mark.needs("samples")
def test_the_samples_are_a_fatal_xid_and_six_flaps_and_nothing_else(samples):
    xid = one(facts_of(KIND, *samples.glob("kernel_logs/*xid*.log")))
    assert (xid.kind, xid.code, xid.device, xid.fatal) == ("xid", "119", "GPU 0000:9b:00", True)
    assert (xid.count, xid.last - xid.time, xid.source.line) == (5, 355.0, 3)
    flap = one(facts_of(KIND, *samples.glob("misc/azurehpc*")))
    assert (flap.kind, flap.device, flap.count, flap.fatal) == ("ib-flap", "ib6", 6, False)
    assert (flap.host, flap.last - flap.time) == ("jplc7eb7-vm-0", 5.0)
    assert "did not come back" not in flap.text
    others = [p for folder in ("watchdog_logs", "megatron_logs", "bloom176b")
              for p in (samples / folder).iterdir()]  # fmt: skip
    assert others
    assert facts_of(KIND, *others) == []


def test_a_line_is_read_with_every_header(tmp_path):
    path = tmp_path / "messages"
    for header, host, after_noon in (
        ("", None, None), ("[  123.456789] ", None, None), ("[Sun Feb 23 12:00:01 2025] ", None, 1),
        ("kern  :warn  : 2025-02-23T12:00:01,500000+00:00 ", None, 1.5),
        ("2025-02-23T13:00:01.250000+01:00 node7 kernel: ", "node7", 1.25),
        ("2025-02-23T13:00:01+0100 node7 kernel: ", "node7", 1),
        ("Feb 23 12:00:01 node7 kernel: ", "node7", 1),
        ("Feb 23 12:00:01 node7 kernel: [123456.789012] ", "node7", 1),
        ("<4>Feb 23 12:00:01 node7.cluster kernel: ", "node7.cluster", 1),
        ("1740312001.250000 node7 kernel: ", "node7", 1.25), ("4,1234,5678901,-;", None, None),
    ):  # fmt: skip
        path.write_text(header + XID)
        os.utime(path, (NOON + 3600, NOON + 3600))
        trouble = one(facts_of(KIND, path))
        assert (trouble.device, trouble.code, trouble.pids) == ("GPU 0000:9b:00", "79", (4711,))
        time = None if after_noon is None else NOON + after_noon
        assert (trouble.host, trouble.time) == (host, time), header


def test_journalctl_json_is_read(log):
    line = (
        '{"__REALTIME_TIMESTAMP":"1740312001250000","_HOSTNAME":"node7",'
        '"SYSLOG_IDENTIFIER":"kernel","MESSAGE":"NVRM: Xid (PCI:0000:9b:00): 48, DBE"}\n'
    )
    trouble = one(log.facts(line))
    assert (trouble.host, trouble.time, trouble.code) == ("node7", NOON + 1.25, "48")


def test_a_date_without_a_year_is_the_last_one_before_the_file_was_written(tmp_path):
    path = tmp_path / "syslog"
    path.write_text("Dec 31 23:59:59 n1 kernel: " + XID + "Feb 29 10:00:00 n1 kernel: " + XID)
    os.utime(path, (NOON, NOON))
    trouble = one(facts_of(KIND, path))
    last = datetime.fromtimestamp(trouble.last, timezone.utc)
    assert (last.year, last.month, trouble.count, trouble.coarse) == (2024, 12, 2, True)


GPU = "GPU 0000:9b:00"
OF_XID = "NVRM: Xid (PCI:0000:9b:00): "
FAULTS = (  # line, kind, device, fatal, whose
    (f"{OF_XID}13, pid=1, name=python, SM Warp Exception", "xid", GPU, True, "application"),
    (f"{OF_XID}31, pid=1, name=python, MMU Fault", "xid", GPU, True, "application"),
    (f"{OF_XID}43, pid=1, name=python, channel 0x10", "xid", GPU, True, "application"),
    (f"{OF_XID}45, pid=1, name=python, Ch 00000010", "xid", GPU, False, "cleanup"),
    (f"{OF_XID}63, Row remapping event", "xid", GPU, False, "notice"),
    (f"{OF_XID}94, pid=1, Contained: SM", "xid", GPU, True, "hardware"),
    (f"{OF_XID}149, NETIR_LINK_EVT  Fatal   XC0 i0 Link 01 (0x1)", "xid", GPU, True, "hardware"),
    (f"{OF_XID}999, something new", "xid", GPU, False, "unknown"),
    ("nvidia-nvswitch0: SXid (PCI:0000:c3:00.0): 24007, Fatal, Link 30 sourcetrack timeout",
     "sxid", "NVSwitch 0000:c3:00", True, "hardware"),
    ("nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 28006, Non-fatal, Link 46 MC TS", "sxid",
     "NVSwitch 0000:c1:00", False, "hardware"),
    ("pcieport 0000:ae:00.0: AER: Uncorrected (Fatal) error received: 0000:ae:00.0", "pcie",
     "PCIe port 0000:ae:00.0", True, "hardware"),
    ("nfs: server fs1.lan not responding, still trying", "file-system", "NFS server fs1.lan",
     False, "hardware"),
    ("Lustre: scratch-OST0001-osc-ffff: Connection to scratch-OST0001 (at 10.0.0.1@o2ib) was "
     "lost; in progress operations using this service will wait", "file-system",
     "Lustre target scratch-OST0001", False, "hardware"),
    ("watchdog: BUG: soft lockup - CPU#18 stuck for 27s! [python3:2254956]", "lockup", None,
     False, "hardware"),
    ("Kernel panic - not syncing: Fatal machine check", "node", None, True, "hardware"),
    ("EDAC MC0: 1 UE memory read error on CPU_SrcID#0", "ecc", "host memory MC0", True, "hardware"),
    ("mlx5_core 0000:5c:00.0: mlx5_pcie_event:299:(pid 2): Detected insufficient power on the "
     "PCIe slot (27W).", "power", "network card 0000:5c:00.0", False, "hardware"),
    ("CPU12: Package temperature above threshold, cpu clock throttled", "thermal", None, False,
     "hardware"),
    ("nvme nvme4: Disabling device after reset failure: -19", "disk", "disk nvme4", False,
     "hardware"),
    ("bnxt_en 0000:b3:00.0 eth2: NIC Link is Down", "link-flap", "eth2", False, "hardware"),
)  # fmt: skip
HEALTHY = (
    "NVRM: Xid (PCI:0009:01:00): 145, RLW_REMAP Nonfatal XC0 i0 Link 02 (0x4 0x1)",
    "NVRM: Xid (PCI:0009:01:00): 154, GPU recovery action changed from 0x1 to 0x0 (None)",
    "[1.000000] nvidia-nvswitch2: open (major=510)",
    "Feb 23 12:00:01 n1 systemd-networkd[1]: veth12ab: lost carrier",
    "Feb 23 12:00:01 n1 sshd[1]: ib0: lost carrier",
    "[1.000000] mlx5_core 0000:d2:00.0: mlx5_cmd_out_err:838:(pid 2): ACCESS_REG(0x805) failed",
)


def test_each_fault_says_what_it_is_and_whose(log, golden):
    said = []
    for line, *expected in FAULTS:
        trouble = one(log.facts(f"[77.000001] {line}\n"))
        made = [trouble.kind, trouble.device, trouble.fatal, trouble.whose]
        assert made == expected, line
        said.append(f"{line}\n  {trouble.code}: {trouble.text}")
    for line in HEALTHY:
        assert log.facts(line + "\n") == [], line
    golden("\n".join(said))


def test_the_three_lines_of_one_lost_gpu_count_once(log):
    trouble = one(log.facts(
        "[9.000000] NVRM: Xid (PCI:0000:18:00): 79, pid=1, name=a, GPU has fallen off the bus.\n"
        "[9.000000] NVRM: GPU 0000:18:00.0: GPU has fallen off the bus.\n"
        "[9.000000] NVRM: The NVIDIA GPU 0000:18:00.0\n"
        "[9.000000] NVRM: (PCI ID: 10de:2330) installed in this system has\n"
        "[9.000000] NVRM: fallen off the bus and is not responding to commands.\n"
    ))  # fmt: skip
    assert (trouble.code, trouble.device, trouble.count) == ("79", "GPU 0000:18:00", 1)


def test_a_link_that_does_not_come_back_is_said_so(log, golden):
    down = "[9.000000] mlx5_core 0000:b3:00.0 ib3: Link down\n"
    up = "[9.500000] mlx5_core 0000:b3:00.0 ib3: Link up\n"
    back, gone = one(log.facts(down + up)), one(log.facts(down + up + down))
    assert [(t.kind, t.device, t.count) for t in (back, gone)] == [
        ("ib-flap", "ib3", 1), ("ib-flap", "ib3", 2),
    ]  # fmt: skip
    golden(f"{back.text}\n{gone.text}")


OOM = """\
Feb 23 12:00:01 n1 kernel: python3 invoked oom-killer: gfp_mask=0xcc0, order=0, oom_score_adj=0
Feb 23 12:00:01 n1 kernel: oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,\
mems_allowed=0-1,oom_memcg=/slurm/job_7,task_memcg=/slurm/job_7,task=pt_data_worker,pid=77,uid=9
Feb 23 12:00:01 n1 kernel: Memory cgroup out of memory: Killed process 77 (pt_data_worker) \
total-vm:1kB, anon-rss:1kB
Feb 23 12:00:02 n1 kernel: Out of memory: Killed process 78 (python3) total-vm:9kB
"""
SEGFAULT = (
    "[Thu Oct 10 03:06:53 2024] pt_main_thread[2536443]: segfault at 7f797fe00000 ip "
    "00007f7c7ac69996 sp 00007f7c12fd7c30 error 4 in libnccl.so.2[7f7c7ac00000+d3d3000]\n"
)


def test_victims_of_the_oom_killer_are_deaths_once_each(log):
    facts = log.facts(OOM)
    deaths = of_kind(facts, Death)
    assert [(d.how, d.process.host, d.process.pid, d.signal, d.by) for d in deaths] == [
        ("oom", "n1", 77, 9, "kernel"),
        ("oom", "n1", 78, 9, "kernel"),
    ]
    assert {t.kind for t in of_kind(facts, Trouble)} == {"oom"}


def test_a_segfault_and_a_hung_task_name_their_processes(log):
    death = one(log.facts(SEGFAULT), Death)
    assert (death.how, death.signal, death.process.pid) == ("signal", 11, 2536443)
    assert "libnccl.so.2" in death.text
    facts = log.facts("[9.000000] INFO: task python3:1177 blocked for more than 120 seconds.\n")
    state = one(facts, State)
    assert (state.process.pid, state.state) == (1177, "uninterruptible")
    assert one(facts).kind == "hung-task"


def test_a_boot_counts_only_after_other_lines(log):
    boot = "[    0.000000] Linux version 5.15.0\n"
    assert log.facts(boot + "[    1.000000] usb 1-1: new device\n") == []
    panic = "[ 9999.000000] Kernel panic - not syncing: x\n"
    assert [(t.kind, t.fatal) for t in log.facts(panic + boot)] == [("node", True), ("boot", True)]


def test_lines_far_into_a_long_job_log_are_found_with_their_number(tmp_path):
    path = tmp_path / "job.log"
    path.write_text("step 1 loss 2.0\n" * 600_000 + XID + "step 2\n" * 9)
    assert one(facts_of(KIND, path)).source.line == 600_001
