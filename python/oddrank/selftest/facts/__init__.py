"""The table of facts that ranks are compared by, grouped by where they are read."""

from collections.abc import Mapping

from oddrank.control.stages import RunState
from oddrank.selftest.facts import gpu, host, network, software
from oddrank.selftest.facts.fact import Fact, Facts

# Step that a rank shows -> the facts that it reads then. The git commit has a step of its own, the
# last one: it may lie on a file system that does not answer.
STEPS: dict[str, tuple[Fact, ...]] = {
    "read versions": software.FACTS,
    "ask for its GPU": gpu.FACTS,
    "read limits": host.LIMITS,
    "read what the host is": host.FACTS,
    "read what the network is": network.FACTS,
    "read the git commit of the working directory": software.COMMIT,
}

TABLE: tuple[Fact, ...] = tuple(fact for facts in STEPS.values() for fact in facts)


def results(run: RunState) -> Mapping[int, Facts]:
    """Returns the results of stage environment."""
    return run.of("environment")
