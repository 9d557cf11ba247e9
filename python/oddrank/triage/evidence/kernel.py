"""Reads kernel logs: dmesg, journalctl -k, syslog, /dev/kmsg. Faults of devices, and kills.

A new message is a row of RULES.
"""

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from oddrank.inputs import Item, Notes, unix_time
from oddrank.inputs.files import is_text
from oddrank.machine.xid import SXID, UNKNOWN, XID, XIDS, harmless, pci_slot
from oddrank.triage.evidence import Kind, time_in
from oddrank.triage.evidence.lines import matching, words
from oddrank.triage.facts import Death, Fact, Process, Source, State, Trouble

_MOST_PIDS = 64
_BEFORE = re.compile(r"previous Xid:? (\d+)")
_TEXT = 200
_CLOCK = r"\d\d:\d\d:\d\d"
_ISO = rf"\d{{4}}-\d\d-\d\d[T ]{_CLOCK}(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?"
_PROGRAM = r"(?P<program>[\w.@/-]+)(?:\[\d+\])?:"
# Times since boot; dmesg --reltime and -H write those since the line before, +0.000041.
_BOOT = r"(?:\[(?: *\+?\d+\.\d{3,9}|\w{3} ?\d+ \d\d:\d\d)(?:\]|, *[TC]\d+\]) ?)"
# The header before the message, per program that writes such logs.
_HEADERS = tuple(
    re.compile(pattern)
    for pattern in (
        rf"\[\w{{3}} \w{{3}} +\d+ {_CLOCK} \d{{4}}\] ",
        rf"(?:\w+ *:\w+ *: )?\[?{_ISO}\]? (?:(?P<host>[\w.-]+) {_PROGRAM} {_BOOT}?)?",
        rf"(?:<\d+>)?[A-Z][a-z]{{2}} +\d+ {_CLOCK}(?:\.\d+)? (?P<host>[\w.-]+) {_PROGRAM} {_BOOT}?",
        rf"\d{{9,11}}\.\d{{3,6}} (?P<host>[\w.-]+) {_PROGRAM} {_BOOT}?",
        r"\d+,\d+,\d+,[-c][^;]{0,200};",
        rf"(?:<\d+>|\w+ *:\w+ *: )?{_BOOT}(?:(?P<host>[\w.-]+) kernel: )?",
    )
)  # fmt: skip
# Other programs may repeat a kernel's line: theirs is not counted.
_PROGRAMS = re.compile(r"(kernel|systemd|NetworkManager|nv-?|nvidia|mce|edac|rasdaemon|dhclient)")
_SIGNS = (b"[", b"kern", b"systemd", b";")  # one of them is in each line that _LOG finds
_LOG = re.compile(
    rb"^(?:\[\w{3} \w{3} +\d+ \d\d:\d\d:\d\d \d{4}\] |\[ *\+?\d+\.\d{6}\] |kern +:\w+ *: |"
    rb"\d+,\d+,\d+,[-c][^;\n]*;|(?:<\d+>)?\w{3} +\d+ \d\d:\d\d:\d\d [\w.-]+ (?:kernel|systemd)|"
    rb"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d\S* [\w.-]+ (?:kernel|systemd))",
    re.MULTILINE,
)


@dataclass(frozen=True)
class Rule:
    """One kind of message.

    kind: of the Trouble; xid, sxid, oom, segfault and hung-task are treated by name below.
    any_of: a line holds one of these, if the shape can match. shape: its groups device, pid, name
    and code are used. text: the sentence's end, with groups; "": the message itself. device: how it
    is shown; {} is what the group found. alone: the message is recognised without the header of a
    kernel log. ends: the message says that it is over.
    """

    kind: str
    any_of: str
    shape: str
    text: str = ""
    device: str = "{}"
    fatal: bool = False
    alone: bool = False
    ends: bool = False

    @cached_property
    def words(self) -> tuple[str, ...]:
        return tuple(self.any_of.split("|"))

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        return re.compile(self.shape)


_NIC = r"(?P<device>[\w.-]{1,40})"
# The text of a driver, networkd, NetworkManager or a bond before the state of a link.
_LINK = rf"(?:^|[\s(]){_NIC}\)?:? (?:Port: \d+ |NIC |carrier: )*"
_PCI = r"(?P<device>[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7])"
_SLOT = r"(?P<device>(?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2})"
_OOM = "out of memory: the kernel killed {name}"
_SERVER = r"(?P<device>[^\s,]{1,120})"
# Networks that come and go with containers and virtual machines.
_VIRTUAL = re.compile(r"(veth|docker|br-|cali|cni|tap|tun|lxc|virbr|flannel|vxlan|dummy|lo$)")

# Sources of the messages: the kernel's own format strings (mm/oom_kill.c, kernel/hung_task.c,
# arch/x86/mm/fault.c, drivers/pci/pcie/aer.c, net/sunrpc, mlx5), NVIDIA's Xid catalog and Fabric
# Manager guide.
# fmt: off
RULES: tuple[Rule, ...] = (
    # GPUs and NVSwitches
    Rule("xid", "NVRM: ", XID, alone=True),
    Rule("fallen", "NVRM: ",
          r"NVRM: +(?=The NVIDIA|.* fallen off the bus)(?:The NVIDIA )?GPU (?:at )?(?:PCI:)?"
          rf"{_SLOT}(?:\.\d)?(?:: GPU has |\s*$)", alone=True),
    Rule("sxid", "SXid (PCI", SXID, alone=True),
    Rule("gpu", "NVRM: ", r"NVRM: GPU (?P<device>[0-9a-fA-F:.]+): RmInitAdapter failed",
          "it could not be initialised", "GPU {}", fatal=True, alone=True),
    Rule("nvlink", "NVRM: ", r"NVRM: (?P<name>knvlink\w+: .*(?:[Ff]ailed|error))",
          "an NVLink could not be set up", alone=True),
    Rule("gpu", "amdgpu",
          rf"amdgpu {_PCI}: (?:amdgpu: )?(?:ring \S+ timeout|GPU reset begin|"
          r".*uncorrectable hardware errors? detected)", "", "GPU {}", fatal=True, alone=True),
    Rule("gpu", "Timedout job|GPU HANG",
          rf"\b(?:xe|i915) {_PCI}: \[drm\] .*(?:Timedout job|GPU HANG)", "", "GPU {}", fatal=True,
          alone=True),
    # Links
    Rule("link", "ink down|ink Down|ink is |ink DOWN|link disconnected|definitely down|ost carrier",
          rf"{_LINK}(?:[Ll]ost carrier|[Ll]ink (?:is |status definitely )?"
          r"(?:[Dd]own|DOWN|disconnected)\b)", "it lost its link"),
    Rule("link", "ink up|ink Up|ink is |ink UP|link connected|definitely up|ained carrier",
          rf"{_LINK}(?:[Gg]ained carrier|[Ll]ink (?:is |status definitely )?"
          r"(?:[Uu]p|UP|connected)\b)", ends=True),
    Rule("power", "insufficient power", rf"{_PCI}: .*Detected insufficient power on the PCIe slot",
          "its PCIe slot gives too little power", "network card {}", alone=True),
    Rule("ib-flap", "Port module event", rf"(?:{_PCI}: .*)?Port module event\[error\]: .*",
          "", "network card {}", alone=True),
    Rule("network", "health compromised|Health issue|assert_var|fatal state",
          rf"mlx5_core {_PCI}: .*"
          r"(?:health compromised|Health issue observed|assert_var|fatal state)",
          "its firmware reports a failure", "network card {}", fatal=True, alone=True),
    Rule("network", "transmit ",
          rf"(?:NETDEV WATCHDOG: (?:CPU: \d+: )?)?{_NIC}:? ?(?:\([\w-]+\): )?transmit (?:timeout|"
          r"queue \d+ timed out)", "it stopped sending"),
    Rule("network", "dump error cqe",
          r"(?P<device>mlx\d_\d+): ?(?:dump_cqe:\d+:)?.*dump error cqe",
          "it completed work with an error (a remote side that ended does that, too)"),
    # PCIe, memory, heat
    Rule("pcie", "AER: can't recover", rf"nvidia {_PCI}: AER: can't recover",
          "an uncorrected PCIe error from which it can't recover", "GPU {}", fatal=True,
          alone=True),
    Rule("pcie", "AER: Uncorrect|AER: Multiple",
          rf"(?:pcieport {_PCI}: )?AER: (?:Multiple )?"
          r"(?P<code>Uncorrect\w+ \((?:Fatal|Non-Fatal)\))",
          "an uncorrected PCIe error", "PCIe port {}", alone=True),
    Rule("pcie", ": DPC: ", rf"pcieport {_PCI}: DPC: (?:containment event|.*error)",
          "its link was shut after an error (DPC)", "PCIe port {}", fatal=True),
    Rule("pcie", "pciehp",
          rf"pcieport {_PCI}: pciehp: Slot\(\S+\): (?:Link Down|Card not present)",
          "its card was lost", "PCIe port {}", fatal=True),
    Rule("ecc", "EDAC MC", r"EDAC (?P<device>MC\d+): \d+ UE ", "an uncorrected memory error",
          "host memory {}", fatal=True),
    Rule("ecc", "EDAC MC", r"EDAC (?P<device>MC\d+): \d+ CE ", "corrected memory errors",
          "host memory {}"),
    Rule("mce", "achine ", r"\[Hardware Error\]: .*Machine Check(?: Exception)?: ",
          "the processor reports a hardware error (machine check)", fatal=True),
    Rule("mce", "Memory failure", r"Memory failure: 0x[0-9a-f]+: ", "a page of memory failed"),
    Rule("thermal", "temperature",
          r"(?:CPU\d+: (?:Core|Package) temperature(?:/speed)? above threshold)",
          "its processors slow down for heat"),
    Rule("thermal", "temperature", r"critical temperature reached",
          "it reached its critical temperature", fatal=True),
    # The operating system
    Rule("oom", "oom-kill:",
          r"oom-kill:constraint=(?P<code>\w+),.*task=(?P<name>[^,]*),pid=(?P<pid>\d+)", _OOM,
          alone=True),
    Rule("oom", "Killed process|Kill process",
          r"(?P<code>Memory cgroup out of memory|Out of memory)[^:]*: Kill(?:ed)? process "
          r"(?P<pid>\d+),? (?:UID \d+,? )?\((?P<name>[^)]*)\)", _OOM, alone=True),
    Rule("oom", "Killed process", r"^Killed process (?P<pid>\d+) \((?P<name>[^)]*)\)", _OOM),
    Rule("segfault", "segfault at", r"(?P<name>[^\s\[]+)\[(?P<pid>\d+)\]: segfault at \S+ ip ",
          alone=True),
    Rule("segfault", "traps:", r"traps: (?P<name>[^\[]+)\[(?P<pid>\d+)\] "
          r"(?P<code>general protection|trap [\w ]+?)(?: fault)? ip:"),
    Rule("hung-task", "blocked for more than",
          r"(?:INFO: )?task (?P<name>.+):(?P<pid>\d+) (?:is )?blocked for more than "
          r"(?P<code>\d+) seconds", "{name} was stuck in the kernel for over {code} s"),
    Rule("lockup", "lockup|LOCKUP",
          r"(?:soft lockup - CPU#\d+ stuck for \d+s! \[(?P<name>.+):(?P<pid>\d+)\]|"
          r"hard LOCKUP on cpu)", "a processor is stuck in the kernel"),
    Rule("lockup", "detected stall", r"rcu: INFO: \w+ (?:self-)?detected stall",
          "a processor is stuck in the kernel"),
    Rule("node", "ernel panic|ernel Panic", r"Kernel [Pp]anic - not syncing",
          "its kernel panicked", fatal=True),
    Rule("boot", "Linux version ", r"^Linux version \d", "it booted", fatal=True),
    Rule("node", "file-max limit", r"VFS: file-max limit \d+ reached", "it ran out of open files"),
    Rule("boot", "reboot: |System is ",
          r"reboot: (?:Restarting system|Power down)|System is (?:rebooting|powering down)",
          "it was shut down", fatal=True),
    # File systems and disks
    Rule("file-system", "nfs: server|nfs4: server", rf"nfs4?: server {_SERVER} not responding",
          "it does not respond", "NFS server {}"),
    Rule("file-system", "nfs: server|nfs4: server", rf"nfs4?: server {_SERVER} OK", "",
          "NFS server {}", ends=True),
    Rule("file-system", "Lustre: ",
          r"Lustre: \S+: Connection to (?P<device>\S+) \(at \S+\) was lost",
          "its connection was lost", "Lustre target {}"),
    Rule("file-system", "Lustre: ", r"Lustre: \S+: Connection restored to (?P<device>\S+)", "",
          "Lustre target {}", ends=True),
    Rule("file-system", "has not responded in ",
          r"CIFS:.* (?P<device>\S+) has not responded in \d+ seconds", "it does not respond",
          "SMB server {}"),
    Rule("file-system", "libceph: ",
          r"libceph: (?P<device>(?:mon|osd)\d+) .*(?:session lost|down)", "it was lost", "Ceph {}"),
    Rule("disk", "emounting filesystem read-only",
          r"(?P<device>\([\w-]+\)): Remounting filesystem read-only",
          "it is read-only after errors", "file system {}"),
    Rule("disk", "I/O error|EXT4-fs error",
          r"(?:Buffer I/O error on dev|I/O error, dev|EXT4-fs error \(device) (?P<device>[\w-]+)",
          "it has I/O errors", "disk {}"),
    Rule("disk", "nvme nvme",
          r"nvme (?P<device>nvme\d+): (?:I/O .*timeout, reset controller|"
          r"Disabling device after reset|controller is down)", "it stopped answering", "disk {}"),
)
# fmt: on
WORDS = words(*sorted({word for rule in RULES for word in rule.words}))


@dataclass(frozen=True)
class _Line:
    """A line without its header. log: it has the header of a kernel log."""

    text: str
    log: bool = False
    host: str | None = None
    time: float | None = None
    coarse: bool = False


def _line(text: str, newest: float) -> _Line:
    """Takes the header off. newest: when the file was written, for dates without a year."""
    for header in _HEADERS:
        if found := header.match(text):
            groups = found.groupdict()
            if groups.get("program") and not _PROGRAMS.match(groups["program"]):
                return _Line("")
            when, coarse = time_in(found[0], newest)
            return _Line(text[found.end() :], True, groups.get("host"), when, coarse)
    return _Line(text)


_Folded = dict[tuple[Any, ...], Trouble]
"""Troubles of one kind, device and host: one fact with a count."""


def _fold(found: _Folded, new: Trouble) -> None:
    # An SXid's text tells of each link; an application's errors belong to its process.
    text = "" if new.kind == "sxid" else new.text
    pids = new.pids if new.whose == "application" else ()
    key = (new.kind, new.code, new.device, new.host, new.fatal, new.whose, text, pids)
    old = found.setdefault(key, new)
    if old is not new:
        times = [t for t in (old.time, old.last, new.time, new.last) if t is not None]
        pids = tuple(dict.fromkeys((*old.pids, *new.pids)))[:_MOST_PIDS]
        found[key] = replace(
            old, count=old.count + new.count, pids=pids,
            time=min(times, default=None), last=max(times, default=None),
        )  # fmt: skip


def xid(code: int, rest: str, device: str = "") -> Trouble | None:
    """Returns the fact of an Xid; of one that another one caused, that one's."""
    if before := _BEFORE.search(rest):
        code = int(before[1][:6])
    if harmless(code, rest):
        return None
    row = XIDS.get(code, UNKNOWN)
    return Trouble(
        "xid", f"Xid {code}: {row.text}", Source(""),
        device=f"GPU {pci_slot(device)}" if device else None,
        code=str(code), fatal=row.fatal, whose=row.whose,
    )  # fmt: skip


def _trouble(rule: Rule, found: re.Match[str]) -> Trouble | None:
    """Makes the fact of a line, without its place. None: the line tells of no fault."""
    groups = found.groupdict()
    device, source = groups.get("device"), Source("")
    if rule.kind == "xid":
        return xid(int(found[2][:6]), found[3], found[1])
    if rule.kind == "fallen":
        return xid(79, "", device or "")
    if rule.kind == "sxid":
        slot, code, how, rest = found.groups()
        shown, fatal = f"NVSwitch {pci_slot(slot)}", how.lower() == "fatal"
        return Trouble("sxid", f"SXid {code}{rest}"[:_TEXT], source, None, shown, code, fatal)
    kind, name = rule.kind, device
    if kind == "link":
        if device is None or _VIRTUAL.match(device):
            return None
        kind = "ib-flap" if re.match(r"ib|mlx5|roce|bnxt_re|hsn|efa", device) else "link-flap"
    if device is not None:
        slot = pci_slot(device) if rule.device.startswith("GPU") else device
        name = rule.device.format(slot)
    told = {**groups, "name": groups.get("name") or "a process"}
    said = rule.text.format(**told) or found[0].strip()[:_TEXT]
    pids = (int(groups["pid"][:18]),) if groups.get("pid") else ()
    fatal = rule.fatal or "(Fatal)" in str(groups.get("code"))
    return Trouble(
        kind, said, source, device=name, fatal=fatal, pids=pids,
        code=str(groups.get("code") or "") if kind in {"oom", "pcie"} else "",
    )  # fmt: skip


def _deaths(
    rule: Rule, found: re.Match[str], trouble: Trouble, line: _Line, place: Source
) -> Iterator[Fact]:
    """Yields that a process was killed, crashed, or is stuck in the kernel, as a line says."""
    if not trouble.pids:
        return
    process = Process(host=line.host, pid=trouble.pids[0])
    if rule.kind == "hung-task":
        yield State(process, "uninterruptible", place, line.time)
    elif rule.kind in ("oom", "segfault"):
        traps = {"trap invalid opcode": 4, "trap divide error": 8}
        killed = rule.kind == "oom"
        number = 9 if killed else traps.get(found.groupdict().get("code") or "", 11)
        yield Death(
            process, "oom" if killed else "signal", place, time=line.time, coarse=True,
            signal=number, by="kernel", text=line.text[:_TEXT], wall=line.coarse,
        )  # fmt: skip


def _sniff(item: Item) -> bool:
    if not is_text(item):
        return False
    if any(sign in item.head for sign in _SIGNS) and _LOG.search(item.head):
        return True
    return any(_match(line) for _, line in matching(item, WORDS, Notes()))


def _match(text: str, newest: float = 0.0) -> tuple[_Line, Rule, re.Match[str]] | None:
    """Returns the line without its header, the rule for it and the match; None if none is."""
    line = _line(text, newest)
    for rule in RULES:
        if (
            (line.log or rule.alone)
            and any(word in line.text for word in rule.words)
            and (found := rule.pattern.search(line.text))
        ):
            return line, rule, found
    return None


def _facts(item: Item, notes: Notes) -> Iterator[Fact]:
    newest = unix_time(item.written_ns / 1e9) or time.time()
    told: set[object] = set()
    folded: _Folded = {}
    over: set[tuple[Any, ...]] = set()  # kind, device and host of what has come back since
    booted = False
    for number, text in matching(item, WORDS, notes):
        if (matched := _match(text, newest)) is None:
            continue
        line, rule, found = matched
        trouble = _trouble(rule, found)
        if trouble is None:
            continue
        if trouble.text == "it booted" and not booted:  # a log begins with the boot before the job
            booted = True
            if number < 50:
                continue
        booted = True
        place = Source(item.name, number)
        if rule.ends:
            over.add((trouble.kind, trouble.device, line.host))
            continue
        # Two lines tell of a victim, and up to three that a GPU fell off the bus.
        same: object = (line.host, trouble.pids) if rule.kind == "oom" else None
        same = (trouble.device, line.time) if trouble.code == "79" else same
        if same is not None and same in told:
            continue
        told.add(same)
        yield from _deaths(rule, found, trouble, line, place)
        if rule.kind == "segfault":
            continue
        said = re.search(r"pid=(\d{1,18})", line.text) if trouble.kind == "xid" else None
        pids = (int(said[1]),) if said else trouble.pids
        over.discard((trouble.kind, trouble.device, line.host))
        _fold(
            folded,
            replace(
                trouble, source=place, host=line.host, time=line.time, last=line.time, pids=pids,
                coarse=line.coarse,
            ),
        )  # fmt: skip
    for each in folded.values():
        lasts = (each.kind, each.device, each.host) not in over
        if lasts and each.kind in {"ib-flap", "link-flap", "file-system"}:
            yield replace(each, text=f"{each.text}, and did not come back in this log")
        else:
            yield each


KIND = Kind(
    "kernel log", binary=False, sniff=_sniff,
    read=lambda items, notes: [fact for item in items for fact in _facts(item, notes)],
)  # fmt: skip
