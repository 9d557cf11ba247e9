"""The table of kernel messages that tell of faults. A new message is one row.

Sources: the kernel's own format strings (mm/oom_kill.c, kernel/hung_task.c, arch/x86/mm/fault.c,
drivers/pci/pcie/aer.c, net/sunrpc, mlx5), NVIDIA's Xid catalog and Fabric Manager guide.
"""

import re
from dataclasses import dataclass

from oddrank.machine.xid import SXID, XID
from oddrank.triage.evidence.lines import words


@dataclass(frozen=True)
class Rule:
    """One kind of message.

    kind: of the Trouble; xid, sxid, oom, segfault and hung-task are treated by name in kernel.py.
    words: a line holds one of them, if the pattern can match. pattern: its groups device, pid, name
    and code are used. device: how it is shown; {} is what the group found. text: the sentence's
    end, with groups; "": the message itself. alone: the message is recognised without the header
    of a kernel log. ends: the message says that it is over.
    """

    kind: str
    words: tuple[str, ...]
    pattern: re.Pattern[str]
    text: str
    device: str
    fatal: bool
    alone: bool
    ends: bool


def _rule(
    kind: str, any_of: str, pattern: str, text: str = "", device: str = "{}", *,
    fatal: bool = False, alone: bool = False, ends: bool = False,
) -> Rule:  # fmt: skip
    pieces = tuple(any_of.split("|"))
    return Rule(kind, pieces, re.compile(pattern), text, device, fatal, alone, ends)


_NIC = r"(?P<device>[\w.-]{1,40})"
_PCI = r"(?P<device>[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7])"
_SLOT = r"(?P<device>(?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2})"
_OOM = "out of memory: the kernel killed {name}"
_SERVER = r"(?P<device>[^\s,]{1,120})"
# Networks that come and go with containers and virtual machines.
VIRTUAL = re.compile(r"(veth|docker|br-|cali|cni|tap|tun|lxc|virbr|flannel|vxlan|dummy|lo$)")

# fmt: off
RULES: tuple[Rule, ...] = (
    # GPUs and NVSwitches
    _rule("xid", "NVRM: ", XID, alone=True),
    _rule("fallen", "NVRM: ",
          rf"NVRM: +GPU (?:at )?(?:PCI:)?{_SLOT}(?:\.\d)?: GPU has fallen off the bus", alone=True),
    _rule("fallen", "NVRM: ", rf"NVRM: +The NVIDIA GPU {_SLOT}\.\d\s*$", alone=True),
    _rule("sxid", "SXid (PCI", SXID, alone=True),
    _rule("sxid-fm", "detected NVSwitch",
          r"detected NVSwitch (?P<name>fatal|non-fatal) error (?P<code>\d+) on fid \d+ on "
          r"NVSwitch pci bus id (?P<device>[0-9a-fA-F:.]+)", alone=True),
    _rule("gpu", "NVRM: ", r"NVRM: GPU (?P<device>[0-9a-fA-F:.]+): RmInitAdapter failed",
          "it could not be initialised", "GPU {}", fatal=True, alone=True),
    _rule("nvlink", "NVRM: ", r"NVRM: (?P<name>knvlink\w+: .*(?:[Ff]ailed|error))",
          "an NVLink could not be set up", alone=True),
    _rule("gpu", "amdgpu",
          rf"amdgpu {_PCI}: (?:amdgpu: )?(?:ring \S+ timeout|GPU reset begin|"
          r".*uncorrectable hardware errors? detected)", "", "GPU {}", fatal=True, alone=True),
    _rule("gpu", "Timedout job|GPU HANG",
          rf"\b(?:xe|i915) {_PCI}: \[drm\] .*(?:Timedout job|GPU HANG)", "", "GPU {}", fatal=True,
          alone=True),
    # Links
    _rule("link", " carrier", rf"^{_NIC}: [Ll]ost carrier", "it lost its link"),
    _rule("link", " carrier", rf"^{_NIC}: [Gg]ained carrier", ends=True),
    _rule("link", "ink down|ink Down|ink is |ink DOWN",
          rf"(?:^|\s){_NIC}:? (?:Port: \d+ )?(?:NIC )?[Ll]ink (?:is )?(?:[Dd]own|DOWN)\b",
          "it lost its link"),
    _rule("link", "ink up|ink Up|ink is |ink UP",
          rf"(?:^|\s){_NIC}:? (?:Port: \d+ )?(?:NIC )?[Ll]ink (?:is )?(?:[Uu]p|UP)\b", ends=True),
    _rule("link", "link disconnected|link connected",
          rf"device \({_NIC}\): (?:carrier: )?link disconnected", "it lost its link"),
    _rule("link", "link disconnected|link connected",
          rf"device \({_NIC}\): (?:carrier: )?link connected", ends=True),
    _rule("link", "link status definitely down",
          r"\(slave (?P<device>\S+)\): link status definitely down", "it lost its link"),
    _rule("power", "insufficient power", rf"{_PCI}: .*Detected insufficient power on the PCIe slot",
          "its PCIe slot gives too little power", "network card {}", alone=True),
    _rule("ib-flap", "Port module event", rf"(?:{_PCI}: .*)?Port module event\[error\]: .*",
          "", "network card {}", alone=True),
    _rule("network", "health compromised|Health issue|assert_var|fatal state",
          rf"mlx5_core {_PCI}: .*"
          r"(?:health compromised|Health issue observed|assert_var|fatal state)",
          "its firmware reports a failure", "network card {}", fatal=True, alone=True),
    _rule("network", "transmit ",
          rf"(?:NETDEV WATCHDOG: (?:CPU: \d+: )?)?{_NIC}:? ?(?:\([\w-]+\): )?transmit (?:timeout|"
          r"queue \d+ timed out)", "it stopped sending"),
    _rule("network", "dump error cqe",
          r"(?P<device>mlx\d_\d+): ?(?:dump_cqe:\d+:)?.*dump error cqe",
          "it completed work with an error (a remote side that ended does that, too)"),
    # PCIe, memory, heat
    _rule("pcie", "AER: can't recover", rf"nvidia {_PCI}: AER: can't recover",
          "an uncorrected PCIe error from which it can't recover", "GPU {}", fatal=True,
          alone=True),
    _rule("pcie", "AER: Uncorrect|AER: Multiple",
          rf"(?:pcieport {_PCI}: )?AER: (?:Multiple )?"
          r"(?P<code>Uncorrect\w+ \((?:Fatal|Non-Fatal)\))",
          "an uncorrected PCIe error", "PCIe port {}", alone=True),
    _rule("pcie", ": DPC: ", rf"pcieport {_PCI}: DPC: (?:containment event|.*error)",
          "its link was shut after an error (DPC)", "PCIe port {}", fatal=True),
    _rule("pcie", "pciehp",
          rf"pcieport {_PCI}: pciehp: Slot\(\S+\): (?:Link Down|Card not present)",
          "its card was lost", "PCIe port {}", fatal=True),
    _rule("ecc", "EDAC MC", r"EDAC (?P<device>MC\d+): \d+ UE ", "an uncorrected memory error",
          "host memory {}", fatal=True),
    _rule("ecc", "EDAC MC", r"EDAC (?P<device>MC\d+): \d+ CE ", "corrected memory errors",
          "host memory {}"),
    _rule("mce", "achine ", r"\[Hardware Error\]: .*Machine Check(?: Exception)?: ",
          "the processor reports a hardware error (machine check)", fatal=True),
    _rule("mce", "Memory failure", r"Memory failure: 0x[0-9a-f]+: ", "a page of memory failed"),
    _rule("thermal", "temperature",
          r"(?:CPU\d+: (?:Core|Package) temperature(?:/speed)? above threshold)",
          "its processors slow down for heat"),
    _rule("thermal", "temperature", r"critical temperature reached",
          "it reached its critical temperature", fatal=True),
    # The operating system
    _rule("oom", "oom-kill:",
          r"oom-kill:constraint=(?P<code>\w+),.*task=(?P<name>[^,]*),pid=(?P<pid>\d+)", _OOM,
          alone=True),
    _rule("oom", "Killed process|Kill process",
          r"(?P<code>Memory cgroup out of memory|Out of memory)[^:]*: Kill(?:ed)? process "
          r"(?P<pid>\d+),? (?:UID \d+,? )?\((?P<name>[^)]*)\)", _OOM, alone=True),
    _rule("oom", "Killed process", r"^Killed process (?P<pid>\d+) \((?P<name>[^)]*)\)", _OOM),
    _rule("segfault", "segfault at", r"(?P<name>[^\s\[]+)\[(?P<pid>\d+)\]: segfault at \S+ ip ",
          alone=True),
    _rule("segfault", "traps:", r"traps: (?P<name>[^\[]+)\[(?P<pid>\d+)\] "
          r"(?P<code>general protection|trap [\w ]+?)(?: fault)? ip:"),
    _rule("hung-task", "blocked for more than",
          r"(?:INFO: )?task (?P<name>.+):(?P<pid>\d+) (?:is )?blocked for more than "
          r"(?P<code>\d+) seconds", "{name} was stuck in the kernel for over {code} s"),
    _rule("lockup", "lockup|LOCKUP",
          r"(?:soft lockup - CPU#\d+ stuck for \d+s! \[(?P<name>.+):(?P<pid>\d+)\]|"
          r"hard LOCKUP on cpu)", "a processor is stuck in the kernel"),
    _rule("lockup", "detected stall", r"rcu: INFO: \w+ (?:self-)?detected stall",
          "a processor is stuck in the kernel"),
    _rule("node", "ernel panic|ernel Panic", r"Kernel [Pp]anic - not syncing",
          "its kernel panicked", fatal=True),
    _rule("boot", "Linux version ", r"^Linux version \d", "it booted", fatal=True),
    _rule("node", "file-max limit", r"VFS: file-max limit \d+ reached", "it ran out of open files"),
    _rule("boot", "reboot: |System is ",
          r"reboot: (?:Restarting system|Power down)|System is (?:rebooting|powering down)",
          "it was shut down", fatal=True),
    # File systems and disks
    _rule("file-system", "nfs: server|nfs4: server", rf"nfs4?: server {_SERVER} not responding",
          "it does not respond", "NFS server {}"),
    _rule("file-system", "nfs: server|nfs4: server", rf"nfs4?: server {_SERVER} OK", "",
          "NFS server {}", ends=True),
    _rule("file-system", "Lustre: ",
          r"Lustre: \S+: Connection to (?P<device>\S+) \(at \S+\) was lost",
          "its connection was lost", "Lustre target {}"),
    _rule("file-system", "Lustre: ", r"Lustre: \S+: Connection restored to (?P<device>\S+)", "",
          "Lustre target {}", ends=True),
    _rule("file-system", "has not responded in ",
          r"CIFS:.* (?P<device>\S+) has not responded in \d+ seconds", "it does not respond",
          "SMB server {}"),
    _rule("file-system", "libceph: ",
          r"libceph: (?P<device>(?:mon|osd)\d+) .*(?:session lost|down)", "it was lost", "Ceph {}"),
    _rule("disk", "emounting filesystem read-only",
          r"(?P<device>\([\w-]+\)): Remounting filesystem read-only",
          "it is read-only after errors", "file system {}"),
    _rule("disk", "I/O error|EXT4-fs error",
          r"(?:Buffer I/O error on dev|I/O error, dev|EXT4-fs error \(device) (?P<device>[\w-]+)",
          "it has I/O errors", "disk {}"),
    _rule("disk", "nvme nvme",
          r"nvme (?P<device>nvme\d+): (?:I/O .*timeout, reset controller|"
          r"Disabling device after reset|controller is down)", "it stopped answering", "disk {}"),
)
# fmt: on
WORDS = words(*sorted({word for rule in RULES for word in rule.words}))
