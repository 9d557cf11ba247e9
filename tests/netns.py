"""Two hosts on one machine: network namespaces with host names of their own, joined by one link."""

import itertools
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

_NUMBERS = itertools.count()
PATH = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"


@dataclass(frozen=True)
class Host:
    """A namespace; `prefix` before a command makes it run there."""

    name: str
    namespace: str
    address: str
    interface: str

    @property
    def prefix(self) -> list[str]:
        named = 'hostname "$0" && exec "$@"'
        inside = ["unshare", "--uts", "sh", "-c", named, self.name]
        return ["ip", "netns", "exec", self.namespace, *inside]

    def cut(self) -> None:
        """Takes the link down: packets vanish, nobody is told."""
        _ip("-n", self.namespace, "link", "set", self.interface, "down")


@contextmanager
def two_hosts() -> Iterator[tuple[Host, Host]]:
    """node0 and node1, gone with everything in them at the end. Needs root."""
    own = f"{os.getpid() % 100000}{next(_NUMBERS)}"
    hosts = tuple(
        Host(f"node{i}", f"oddrank-{own}-{i}", f"10.231.7.{i + 1}", f"odd{own}_{i}") for i in (0, 1)
    )
    first, second = hosts
    try:
        for host in hosts:
            _ip("netns", "add", host.namespace)
            _ip("-n", host.namespace, "link", "set", "lo", "up")
        _ip("link", "add", first.interface, "type", "veth", "peer", "name", second.interface)
        for host in hosts:
            _ip("link", "set", host.interface, "netns", host.namespace)
            _ip("-n", host.namespace, "addr", "add", f"{host.address}/24", "dev", host.interface)
            _ip("-n", host.namespace, "link", "set", host.interface, "up")
        yield first, second
    finally:
        for host in hosts:
            with suppress(subprocess.CalledProcessError):
                _ip("netns", "del", host.namespace)


def _ip(*arguments: str) -> None:
    environ = {**os.environ, "PATH": PATH}
    subprocess.run(["ip", *arguments], check=True, capture_output=True, timeout=20, env=environ)
