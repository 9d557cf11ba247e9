"""Asks NCCL's RAS over TCP for the state of its communicators, twice, and for its diagnostics.

As ncclras -v and, from NCCL 2.31 on, ncclras -D do.
"""

import re
import socket
import time
from collections.abc import Mapping

from oddrank import job
from oddrank.collect.sources import RAS, Sink, Source, Target, iso
from oddrank.finding import size_text

DEFAULT = "127.0.0.1:28028"
"""Where NCCL listens."""
_APART = 6.0  # seconds between the questions: enough for triage to see that counts stand still
_HELLO = 1.0  # seconds to connect, and between the first lines
_PATIENCE = 3  # seconds that NCCL waits for its other processes
_SILENCE = 5.0  # seconds without a byte
_PROTOCOL = 2
_ADDRESS = re.compile(r"\[?([^\]\s]+?)\]?:(\d{1,5})")


def _parts(target: Target) -> Mapping[str, str]:
    """Returns the addresses to ask; one empty address if all ranks have switched RAS off."""
    off = [rank for rank in target.living if rank.environ.get("NCCL_RAS_ENABLE") == "0"]
    if off and len(off) == len(target.living):
        return {"": ""}
    return {address: address for address in dict.fromkeys((*target.values(*RAS), DEFAULT))}


def _work(target: Target, address: str, sink: Sink) -> None:
    if not address:
        sink.lacks("NCCL RAS", "NCCL_RAS_ENABLE=0 has switched it off in all ranks", absent=True)
        return
    answers: list[bytes] = []
    sink.at(address)
    for number in range(2):
        if number:
            time.sleep(_APART)
        try:
            answer = ask(address, b"VERBOSE STATUS", sink.room // 2 - 100)
        except ConnectionRefusedError:
            sink.lacks(f"NCCL RAS at {address}", "nobody listens there", absent=not answers)
            break
        except (OSError, ValueError) as error:
            sink.lacks(f"NCCL RAS at {address}", str(error) or repr(error))
            break
        # With its time before it, as users print it and triage reads it.
        when = iso(time.time())[:19].replace("T", " ")
        answers.append(f"{when}\n".encode() + answer + b"\n")
    if answers:
        sink.put(f"nccl_ras.{job.file_name(address)}.txt", b"".join(answers), of=address)
        _diagnose(address, sink)


def _diagnose(address: str, sink: Sink) -> None:
    """Puts NCCL's diagnostics of its GPUs, links and settings. NCCL before 2.31 has none."""
    try:
        answer = ask(address, b"diagnostics", sink.room)
        if answer.startswith(b"BUSY"):
            raise ValueError("somebody else asks for them at this moment")
    except (OSError, ValueError) as error:
        sink.lacks(f"NCCL diagnostics at {address}", str(error) or repr(error))
        return
    if not answer.startswith(b"ERROR"):
        sink.put(f"nccl_diagnostics.{job.file_name(address)}.txt", answer, of=address)


def ask(address: str, question: bytes, most: int) -> bytes:
    """Returns the answer to a question. OSError or ValueError says why there is none."""
    found = _ADDRESS.fullmatch(address)
    if found is None:
        raise ValueError("it is no HOST:PORT")
    with socket.create_connection((found[1], int(found[2])), timeout=_HELLO) as server:
        lines = server.makefile("rb")
        server.sendall(f"CLIENT PROTOCOL {_PROTOCOL}\n".encode())
        said = lines.readline(1000)
        if not said.upper().startswith(b"SERVER PROTOCOL "):
            raise ValueError(f"it is not NCCL's RAS: it said {said[:80]!r}")
        server.sendall(f"TIMEOUT {_PATIENCE}\n".encode())
        said = lines.readline(1000)
        if said.strip().upper() != b"OK":
            raise ValueError(f"it refused the timeout: {said[:80]!r}")
        server.settimeout(_SILENCE)
        server.sendall(question + b"\n")
        answer = lines.read(max(0, most) + 1)
    if len(answer) > most:
        raise ValueError(f"its answer is over {size_text(most)}: raise --limit")
    if not answer:
        raise ValueError("it closed the connection without an answer")
    return answer


SOURCE = Source("NCCL RAS", 20.0, 0.02, _work, _parts)
