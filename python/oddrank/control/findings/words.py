"""Where ranks stand, in words: what the evidence of several causes is made of."""

from oddrank.control.culprits import Culprit
from oddrank.control.stages import Rounds
from oddrank.finding import Evidence, fold

SOURCE = "guard"


def evidence(culprit: Culprit, rounds: Rounds) -> tuple[Evidence, ...]:
    """Where each culprit stood, then where its victims stand."""
    raised = [one for rank in culprit.ranks[:4] for one in raised_at(rounds, rank)]
    own = [_where(rounds, rank) for rank in culprit.ranks[:4]]
    places: dict[str, list[int]] = {}
    for rank in culprit.victims:
        s = rounds.states[rank]
        if s.contact == "never":
            doing = "not come yet"
        elif s.failed is not None:
            doing = f"gave up in stage {s.stage}: {s.failed[:200]}"
        else:
            doing = f"{'waiting' if s.waiting else 'at work'} in stage {s.stage}{step(s.step)}"
        places.setdefault(doing, []).append(rank)
    others = [
        f"rank{'s' if len(ranks) > 1 else ''} {fold(ranks)}: {doing}"
        for doing, ranks in places.items()
    ]
    return (*raised, *(Evidence(text, SOURCE) for text in own + others))


def raised_at(rounds: Rounds, rank: int) -> tuple[Evidence, ...]:
    at = rounds.states[rank].raised_at
    return (Evidence(f"rank {rank}: its exception was raised there", at),) if at else ()


def there(culprit: Culprit, rounds: Rounds, *commands: str) -> tuple[str, ...]:
    """To be typed where the culprit is: its processes and the kernel's log are there alone."""
    host = rounds.states[culprit.ranks[0]].host
    return tuple(f"{command}  (on {host})" for command in commands)


def _where(rounds: Rounds, rank: int) -> str:
    s = rounds.states[rank]
    waits = ", waiting for the others" if s.waiting else ""
    orphaned = ", its launcher has gone" if s.orphaned else ""
    return f"rank {rank}: process {s.pid} {s.state}{step(s.step)}{waits}{orphaned}"


def step(step: str) -> str:
    return f", step {step!r}" if step else ""
