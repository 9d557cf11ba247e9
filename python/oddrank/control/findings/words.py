"""Evidence that several causes share: where each rank stands."""

from oddrank.control.culprits import Culprit
from oddrank.control.stages import RunState
from oddrank.finding import Evidence, ranks_text

SOURCE = "guard"


def evidence(culprit: Culprit, run: RunState) -> tuple[Evidence, ...]:
    """Return where each culprit stood, then where its victims stand."""
    raised = [one for rank in culprit.ranks[:4] for one in raised_at(run, rank)]
    own = [_where(run, rank) for rank in culprit.ranks[:4]]
    places: dict[str, list[int]] = {}
    for rank in culprit.victims:
        s = run.states[rank]
        if s.contact == "never":
            doing = "not joined yet"
        elif s.failed is not None:
            doing = f"gave up in stage {s.stage}: {s.failed[:200]}"
        else:
            doing = f"{'waiting' if s.waiting else 'at work'} in stage {s.stage}{step(s.step)}"
        places.setdefault(doing, []).append(rank)
    others = [f"{ranks_text(ranks)}: {doing}" for doing, ranks in places.items()]
    return (*raised, *(Evidence(text, SOURCE) for text in own + others))


def raised_at(run: RunState, rank: int) -> tuple[Evidence, ...]:
    at = run.states[rank].raised_at
    return (Evidence(f"rank {rank}: its exception was raised there", at),) if at else ()


def host_of(culprit: Culprit, run: RunState) -> str:
    return run.states[culprit.ranks[0]].host


def there(host: str, *commands: str) -> tuple[str, ...]:
    """Return the commands, each with the host to run it on."""
    return tuple(f"{command}  (on {host})" for command in commands)


def _where(run: RunState, rank: int) -> str:
    s = run.states[rank]
    waits = ", waiting for the others" if s.waiting else ""
    orphaned = ", its launcher has gone" if s.orphaned else ""
    return f"rank {rank}: process {s.pid} {s.state}{step(s.step)}{waits}{orphaned}"


def step(step: str) -> str:
    return f", step {step!r}" if step else ""
