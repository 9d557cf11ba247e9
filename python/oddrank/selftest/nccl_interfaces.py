"""Which interfaces NCCL_SOCKET_IFNAME allows."""

from collections.abc import Sequence


def allowed(told: str, names: Sequence[str]) -> list[str]:
    """By NCCL's rule: begins of names, with = whole names, with ^ all others, lo too.

    Only where the variable is not set NCCL leaves out lo; blanks around names count for nothing.
    """
    told = told.strip()
    others, told = told.startswith("^"), told.removeprefix("^")
    whole, told = told.startswith("="), told.removeprefix("=")
    asked = [part.partition(":")[0].strip() for part in told.split(",")]

    def fits(name: str) -> bool:
        return any(name == part if whole else name.startswith(part) for part in asked if part)

    return [name for name in names if fits(name) != others]
