"""Rank 0's address for guards on other hosts, by the store that torch's ranks share."""

import threading

from oddrank import child_code, launch
from oddrank.control import tcp_store
from oddrank.control.address import leave_address

# A store that the script opens comes when rank 0 has imported torch. Who asks ends with the job.
_SECONDS = 10 * 365 * 86400.0
_FETCH = "from oddrank.run import store as s; s.fetch({restart}, {file!r})"


def fetcher(restart: int, file: str) -> tuple[str, ...]:
    """Returns a command that prints rank 0's address, and leaves it in the rendezvous file."""
    return child_code.command(_FETCH.format(restart=restart, file=file))


def start_publisher(address: str, restart: int) -> None:
    """Puts the address into the store once there is one, in a thread that nobody waits for."""
    if master := launch.current().master:
        arguments = (master, _key(restart), address, _SECONDS)
        threading.Thread(target=tcp_store.put, args=arguments, daemon=True).start()


def fetch(restart: int, file: str) -> None:
    """Prints rank 0's address once it is there. The process ends with the guard that reads it."""
    if master := launch.current().master:
        address = tcp_store.get(master, _key(restart), _SECONDS)
        leave_address(file, address)
        print(address, end="")


def _key(restart: int) -> str:
    return f"oddrank/run/{restart}"
