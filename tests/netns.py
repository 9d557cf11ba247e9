"""Makes hosts on one machine: linked network namespaces with host names of their own."""

import os
import secrets
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from patience import PATIENCE

_RELAY = Path(__file__).with_name("delay_relay.py")
# Large packets, so that a relay in Python keeps up.
_MTU = 9000
# Above 127: the rank with the lower address waits for the other to connect, so a wrong loopback
# address shows as a failure.
_TWO = "192.168.231"
PATH = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"


@dataclass(frozen=True)
class Host:
    """A namespace; `prefix` before a command makes it run there."""

    name: str
    namespace: str
    address: str
    interface: str
    names: str = "/etc/hosts"  # the file that it sees as /etc/hosts

    @property
    def prefix(self) -> list[str]:
        named = 'hostname "$0" && mount --bind "$1" /etc/hosts && shift && exec "$@"'
        inside = ["unshare", "--uts", "--mount", "sh", "-c", named, self.name, self.names]
        return ["ip", "netns", "exec", self.namespace, *inside]

    def knowing(self, names: Path) -> "Host":
        """Returns the host with this file as its /etc/hosts."""
        return replace(self, names=str(names))

    def cut(self) -> None:
        """Takes the link down: packets vanish without an error."""
        _ip("-n", self.namespace, "link", "set", self.interface, "down")

    def firewall(self, *rules: str) -> None:
        """Applies nftables rules to incoming packets. Needs nft."""
        chain = "add table inet f; add chain inet f came { type filter hook input priority 0; }"
        script = "; ".join([chain, *(f"add rule inet f came {rule}" for rule in rules)])
        _run("ip", "netns", "exec", self.namespace, "nft", script)


@contextmanager
def two_hosts() -> Iterator[tuple[Host, Host]]:
    """Makes node0 and node1; at the end removes them and ends all their processes. Needs root."""
    own = secrets.token_hex(4)
    hosts = tuple(
        Host(f"node{i}", f"oddrank-{own}-{i}", f"{_TWO}.{i + 1}", f"odd{own}_{i}") for i in (0, 1)
    )
    first, second = hosts
    try:
        for host in hosts:
            _ip("netns", "add", host.namespace)
            _ip("-n", host.namespace, "link", "set", "lo", "up")
        _ip("link", "add", first.interface, "type", "veth", "peer", "name", second.interface)
        for host in hosts:
            _ip("link", "set", host.interface, "netns", host.namespace)
            _bring_up(host)
        yield first, second
    finally:
        for host in hosts:
            with suppress(RuntimeError):
                _ip("netns", "del", host.namespace)


@dataclass(frozen=True)
class Network:
    """Hosts at a switch, all with the same rate in both directions, in Mbit/s.

    The kernel limits rates (htb, tbf). Without netem, a relay process makes delays.
    """

    hosts: tuple[Host, ...]
    switch: str  # the switch's namespace
    rate: float
    _undo: ExitStack

    def heal(self) -> None:
        """Undoes all faults."""
        self._undo.close()

    def slow_sender(self, host: int, rate: float) -> None:
        """Limits everything that the host sends."""
        where = self.hosts[host]
        _class(where, "change", "1:10", rate)
        self._undo.callback(_class, where, "change", "1:10", self.rate)

    def slow_ports(self, host: int, ports: Iterable[int], rate: float) -> None:
        """Limits the host's total rate from these TCP ports."""
        where = self.hosts[host]
        self._own_class(where, "1:30", rate)
        for port in ports:
            _filter(where, "1:30", "ip", "sport", str(port), "0xffff")

    def slow_receiver(self, host: int, rate: float) -> None:
        """Limits everything that the switch sends to the host."""
        port = _port(self.hosts[host])
        _limit(self.switch, port, rate)
        self._undo.callback(_tc, self.switch, "qdisc", "del", "dev", port, "root")

    def slow_way(self, sender: int, receiver: int, rate: float) -> None:
        """Limits the rate from one host to another."""
        host = self.hosts[sender]
        self._own_class(host, "1:20", rate)
        _filter(host, "1:20", "ip", "dst", f"{self.hosts[receiver].address}/32")

    def _own_class(self, host: Host, number: str, rate: float) -> None:
        """Makes the traffic class that a filter will use; one per host at a time."""
        _class(host, "add", number, rate)
        where = ("dev", host.interface, "parent", "1:")
        self._undo.callback(_tc, host.namespace, "class", "del", *where, "classid", number)
        self._undo.callback(_tc, host.namespace, "filter", "del", *where, "prio", "1")

    def slow_link(self, first: int, second: int, rate: float) -> None:
        """Limits both directions between two hosts."""
        self.slow_way(first, second, rate)
        self.slow_way(second, first, rate)

    def delay_link(self, first: int, second: int, seconds: float) -> None:
        """Delays packets from the first host to the second."""
        host, to = self.hosts[first], self.hosts[second].address
        arguments = (f"tun{second}", host.interface, to, str(_MTU), str(seconds))
        relay = subprocess.Popen(
            [*host.prefix, sys.executable, str(_RELAY), *arguments],
            stdout=subprocess.PIPE, text=True, env={**os.environ, "PATH": PATH},
        )  # fmt: skip
        self._undo.callback(_end, relay)
        assert relay.stdout is not None
        assert relay.stdout.readline() == "ready\n"


@contextmanager
def network(count: int, rate: float = 400) -> Iterator[Network]:
    """Makes node0, node1, ... at one switch; at the end removes them. Needs root."""
    own = secrets.token_hex(4)
    switch = f"oddrank-{own}-s"
    hosts = tuple(
        Host(f"node{i}", f"oddrank-{own}-{i}", f"10.231.8.{i + 1}", f"odd{own}_{i}")
        for i in range(count)
    )
    with ExitStack() as stack:
        _namespace(stack, switch)
        _ip("-n", switch, "link", "add", "switch", "mtu", str(_MTU), "type", "bridge")
        _ip("-n", switch, "link", "set", "switch", "up")
        for host in hosts:
            _namespace(stack, host.namespace)
            _plug_in(host, switch, rate)
        with ExitStack() as undo:
            yield Network(hosts, switch, rate, undo)


def _namespace(stack: ExitStack, name: str) -> None:
    _ip("netns", "add", name)
    stack.callback(_ip, "netns", "del", name)
    _ip("-n", name, "link", "set", "lo", "up")


def _plug_in(host: Host, switch: str, rate: float) -> None:
    """Links the host to the switch.

    `rate` limits the host's sends, also between its ranks; without a limit the latter would depend
    on the CPUs, which all hosts share.
    """
    peer = ("peer", "name", _port(host), "netns", switch, "mtu", str(_MTU))
    name = ("name", host.interface, "netns", host.namespace, "mtu", str(_MTU))
    _ip("link", "add", *name, "type", "veth", *peer)
    _ip("-n", switch, "link", "set", _port(host), "master", "switch", "up")
    _bring_up(host)
    # Replies over a delayed link arrive on another device than requests leave by.
    for which in ("all", host.interface):
        key = f"net.ipv4.conf.{which}.rp_filter=0"
        _run("ip", "netns", "exec", host.namespace, "sysctl", "-q", "-w", key)
    where = ("qdisc", "add", "dev", host.interface, "root", "handle", "1:")
    _tc(host.namespace, *where, "htb", "default", "10")
    _class(host, "add", "1:10", rate)
    _limit(host.namespace, "lo", rate)


def _bring_up(host: Host) -> None:
    _ip("-n", host.namespace, "addr", "add", f"{host.address}/24", "dev", host.interface)
    _ip("-n", host.namespace, "link", "set", host.interface, "up")


def _class(host: Host, verb: str, number: str, rate: float) -> None:
    limit = ("rate", _mbit(rate), "burst", "128k", "cburst", "128k", "quantum", "60000")
    where = ("dev", host.interface, "parent", "1:", "classid", number)
    _tc(host.namespace, "class", verb, *where, "htb", *limit)


def _filter(host: Host, number: str, *match: str) -> None:
    where = ("dev", host.interface, "parent", "1:", "protocol", "ip", "prio", "1")
    _tc(host.namespace, "filter", "add", *where, "u32", "match", *match, "flowid", number)


def _limit(namespace: str, device: str, rate: float) -> None:
    limit = ("rate", _mbit(rate), "burst", "128k", "limit", "512k")
    _tc(namespace, "qdisc", "add", "dev", device, "root", "tbf", *limit)


def _port(host: Host) -> str:
    return f"{host.interface}s"


def _mbit(rate: float) -> str:
    return f"{rate:g}mbit"


def _end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait(PATIENCE.limit)


def _tc(namespace: str, *arguments: str) -> None:
    _run("tc", "-n", namespace, *arguments)


def _ip(*arguments: str) -> None:
    _run("ip", *arguments)


def _run(*command: str) -> None:
    environ = {**os.environ, "PATH": PATH}
    try:
        subprocess.run(
            command, check=True, capture_output=True, timeout=PATIENCE.limit, env=environ
        )  # fmt: skip
    except subprocess.CalledProcessError as error:
        raise RuntimeError(f"{' '.join(command)}: {error.stderr.decode().strip()}") from error
