"""The table of facts that ranks are compared by, grouped by where they are read."""

from collections.abc import Mapping

from oddrank.control.stages import RunState
from oddrank.selftest.facts import host, software
from oddrank.selftest.facts.fact import Fact, Facts

# Step that a rank shows -> the facts that it reads then. The git commit has a step of its own, the
# last one: it may lie on a file system that does not answer.
STEPS: dict[str, tuple[Fact, ...]] = {
    "read versions": software.SOFTWARE_FACTS,
    "ask for its GPU": host.GPU_FACTS,
    "read limits": host.LIMIT_FACTS,
    "read what the host is": host.HOST_FACTS,
    "read what the network is": host.NETWORK_FACTS,
    "read the git commit of the working directory": software.COMMIT_FACTS,
}

TABLE: tuple[Fact, ...] = tuple(fact for facts in STEPS.values() for fact in facts)


def results(run: RunState) -> Mapping[int, Facts]:
    """Returns the results of stage environment."""
    return run.of("environment")
