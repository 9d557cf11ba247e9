"""What the ranks are compared by as facts: a row each, by the place where they are read."""

from oddrank.selftest.facts import folder, gpu, host, limits, network, versions
from oddrank.selftest.facts.fact import Fact

# What a rank says that it reads next -> what it reads then. What may lie on a file system that is
# dead has a step of its own, and comes last.
STEPS: dict[str, tuple[Fact, ...]] = {
    "read versions": versions.FACTS,
    "ask for its GPU": gpu.FACTS,
    "read limits": limits.FACTS,
    "read what the host is": host.FACTS,
    "read what the network is": network.FACTS,
    "read the git commit of the working directory": folder.FACTS,
}

TABLE: tuple[Fact, ...] = tuple(fact for facts in STEPS.values() for fact in facts)
