"""The table of kernel messages that tell of faults. A new message is one row.

Sources: the kernel's own format strings (mm/oom_kill.c, kernel/hung_task.c, arch/x86/mm/fault.c,
drivers/pci/pcie/aer.c, net/sunrpc, mlx5), NVIDIA's Xid catalog and Fabric Manager guide.
"""

import re
from dataclasses import dataclass
from functools import cached_property

from oddrank.machine.xid import SXID, XID
from oddrank.triage.evidence.lines import words


@dataclass(frozen=True)
class Rule:
    """One kind of message.

    kind: of the Trouble; xid, sxid, oom, segfault and hung-task are treated by name in kernel.py.
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
_PCI = r"(?P<device>[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7])"
_SLOT = r"(?P<device>(?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2})"
_OOM = "out of memory: the kernel killed {name}"
_SERVER = r"(?P<device>[^\s,]{1,120})"
# Networks that come and go with containers and virtual machines.
VIRTUAL = re.compile(r"(veth|docker|br-|cali|cni|tap|tun|lxc|virbr|flannel|vxlan|dummy|lo$)")

# fmt: off
RULES: tuple[Rule, ...] = (
    # GPUs and NVSwitches
    Rule("xid", "NVRM: ", XID, alone=True),
    Rule("fallen", "NVRM: ",
          rf"NVRM: +GPU (?:at )?(?:PCI:)?{_SLOT}(?:\.\d)?: GPU has fallen off the bus", alone=True),
    Rule("fallen", "NVRM: ", rf"NVRM: +The NVIDIA GPU {_SLOT}\.\d\s*$", alone=True),
    Rule("sxid", "SXid (PCI", SXID, alone=True),
    Rule("sxid-fm", "detected NVSwitch",
          r"detected NVSwitch (?P<name>fatal|non-fatal) error (?P<code>\d+) on fid \d+ on "
          r"NVSwitch pci bus id (?P<device>[0-9a-fA-F:.]+)", alone=True),
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
    Rule("link", " carrier", rf"^{_NIC}: [Ll]ost carrier", "it lost its link"),
    Rule("link", " carrier", rf"^{_NIC}: [Gg]ained carrier", ends=True),
    Rule("link", "ink down|ink Down|ink is |ink DOWN",
          rf"(?:^|\s){_NIC}:? (?:Port: \d+ )?(?:NIC )?[Ll]ink (?:is )?(?:[Dd]own|DOWN)\b",
          "it lost its link"),
    Rule("link", "ink up|ink Up|ink is |ink UP",
          rf"(?:^|\s){_NIC}:? (?:Port: \d+ )?(?:NIC )?[Ll]ink (?:is )?(?:[Uu]p|UP)\b", ends=True),
    Rule("link", "link disconnected|link connected",
          rf"device \({_NIC}\): (?:carrier: )?link disconnected", "it lost its link"),
    Rule("link", "link disconnected|link connected",
          rf"device \({_NIC}\): (?:carrier: )?link connected", ends=True),
    Rule("link", "link status definitely down",
          r"\(slave (?P<device>\S+)\): link status definitely down", "it lost its link"),
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
