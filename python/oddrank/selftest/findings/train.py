"""The causes of the stage train: one function each."""

from collections.abc import Mapping, Sequence

from oddrank.control.stages import Rounds
from oddrank.finding import Confidence, Evidence, Finding, Who

_STAGE = "train"
_AGAIN = ("run it again: a fault that comes and goes shows in another step, or not at all",)
_ALONE = ("run the self-test on its host alone; if it differs there too, take the device out",)
_LESS_SURE = "all have the same data and parameters, but the bits also depend on how it is computed"


def unsound(rounds: Rounds, ranks: Sequence[int], step: int, losses: Mapping[int, str]) -> Finding:
    """A number that is none, where the others have computed finite ones from the same."""
    who = rounds.who(ranks)
    return Finding(
        condition="broken",
        who=who,
        cause="not-finite",
        what=f"{who} is broken: it computes loss or gradients that are not finite in step {step},"
        " from the same data and parameters as the others",
        stage=_STAGE,
        evidence=_losses(ranks, step, losses),
        confidence=Confidence("high", "computed without the others, for whom all was finite"),
        next=_ALONE,
    )


def all_unsound(
    rounds: Rounds, ranks: Sequence[int], step: int, losses: Mapping[int, str]
) -> Finding:
    """Most ranks at once: what they got from the step before, or computed in the same way."""
    return _nobody(
        f"loss or gradients are not finite on {Who('rank', tuple(ranks))} in step {step}: what they"
        " have in common is at fault, not one of them",
        _losses(ranks, step, losses),
        "most ranks have it",
        cause="not-finite-anywhere",
    )


def other_gradients(rounds: Rounds, rank: int, step: int, others: int, kind: str) -> Finding:
    """Its own gradients, before they are reduced, are not those of all others."""
    who = rounds.who([rank])
    return Finding(
        condition="different",
        who=who,
        cause="other-gradients",
        what=f"{who} is different: its own gradients in step {step} are not those of the other"
        f" {others} ranks, which are equal",
        stage=_STAGE,
        evidence=(Evidence(f"bits of loss and gradients in step {step}; {kind}", "own hash"),),
        confidence=Confidence("medium", _LESS_SURE),
        next=_ALONE,
    )


def own_differ(rounds: Rounds, ranks: Sequence[int], step: int, kind: str) -> Finding:
    return _nobody(
        f"{Who('rank', tuple(ranks))} compute different gradients from the same data and"
        f" parameters in step {step}, and there is no majority to say who is right",
        (Evidence(f"bits of loss and gradients in step {step}; {kind}", "own hash"),),
        "no large majority agrees",
        cause="gradients-differ",
    )


def other_parameters(rounds: Rounds, rank: int, step: int, others: int) -> Finding:
    """What all ranks put in was equal, and what this one made of it is not."""
    who = rounds.who([rank])
    return Finding(
        condition="mismatch",
        who=who,
        cause="other-parameters",
        what=f"{who} does not match: its parameters {_after(step)} are not those of the other"
        f" {others} ranks, though all put in the same",
        stage=_STAGE,
        evidence=(Evidence(f"bits of the parameters {_after(step)}", "hash"),),
        confidence=Confidence(
            "medium", "what it received or made of it differs: the way to it may be at fault"
        ),
        next=("oddrank selftest --full --only collectives: is data changed on its way?", *_AGAIN),
    )


def replicas_differ(rounds: Rounds, ranks: Sequence[int], step: int, kind: str) -> Finding:
    return _nobody(
        f"{Who('rank', tuple(ranks))} have different parameters {_after(step)}, though all put in"
        " the same, and there is no majority to say who is right",
        (Evidence(f"bits of the parameters {_after(step)}; {kind}", "hash"),),
        "no large majority agrees",
        cause="replicas-differ",
    )


def _nobody(what: str, evidence: tuple[Evidence, ...], why: str, *, cause: str) -> Finding:
    return Finding(
        condition="unknown",
        who=Who("rank"),
        cause=cause,
        what=what,
        stage=_STAGE,
        evidence=evidence,
        confidence=Confidence("low", why),
        next=_AGAIN,
    )


def _after(step: int) -> str:
    return f"after step {step - 1}" if step else "as rank 0 has sent them"


def _losses(ranks: Sequence[int], step: int, losses: Mapping[int, str]) -> tuple[Evidence, ...]:
    shown = ((rank, float.fromhex(losses[rank])) for rank in ranks[:8])
    return tuple(Evidence(f"rank {r}: {loss:g}", f"own loss in step {step}") for r, loss in shown)
