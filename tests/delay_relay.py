"""Delays every packet that is routed into a TUN device, then forwards it.

delay_relay.py TUN INTERFACE DESTINATION MTU SECONDS delays one link, as netem would.
Prints "ready" once the route is there; ends when it is killed.
"""

import collections
import fcntl
import os
import select
import socket
import struct
import subprocess
import sys
import time

from patience import PATIENCE

_TUNSETIFF = 0x400454CA
_IFF_TUN, _IFF_NO_PI = 1, 0x1000


def main() -> None:
    name, interface, destination, mtu, seconds = sys.argv[1:]
    tun = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(tun, _TUNSETIFF, struct.pack("16sH", name.encode(), _IFF_TUN | _IFF_NO_PI))
    out = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
    # Bypasses the route into the TUN device.
    out.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, interface.encode())
    own = own_address(interface)
    ip("link", "set", name, "mtu", mtu, "txqueuelen", "10000", "up")
    ip("route", "add", f"{destination}/32", "dev", name, "src", own)
    print("ready", flush=True)
    relay(tun, out, destination, float(seconds))


def relay(tun: int, out: socket.socket, destination: str, delay: float) -> None:
    held: collections.deque[tuple[float, bytes]] = collections.deque()
    while True:
        wait = max(0.0, held[0][0] - time.monotonic()) if held else None
        ready, _, _ = select.select([tun], [], [], wait)
        if ready:
            due = time.monotonic() + delay
            for _ in range(64):
                try:
                    held.append((due, os.read(tun, 65536)))
                except BlockingIOError:
                    break
        while held and held[0][0] <= time.monotonic():
            packet = held.popleft()[1]
            if packet[0] >> 4 == 4:
                out.sendto(packet, (destination, 0))


def own_address(interface: str) -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        request = struct.pack("256s", interface.encode())
        return socket.inet_ntoa(fcntl.ioctl(probe.fileno(), 0x8915, request)[20:24])


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, timeout=PATIENCE.limit)


if __name__ == "__main__":
    main()
