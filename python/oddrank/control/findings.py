"""Findings that all commands with ranks share: by triage's table of causes, and by their own."""

import traceback
from collections.abc import Sequence
from dataclasses import replace

from oddrank.control.blame import SOURCE, unfinished
from oddrank.control.stages import JOIN, RankState, RunState, StageRound, node_of
from oddrank.errors import type_and_text
from oddrank.finding import Evidence, Finding, Level, Row, Who, fold, ranks_text
from oddrank.triage import causes
from oddrank.triage.facts import Process, Source, ranks
from oddrank.triage.findings import finding
from oddrank.triage.next_steps import next_steps
from oddrank.triage.suspects import Point, Suspect
from oddrank.triage.view import view

_NOBODY = Who("rank")
_MOST_TOLD = 4
_WHILE_IT_HANGS = "while it hangs: py-spy dump --pid PID  (on {host})"
_KEPT_AWAY: tuple[Level, str] = ("medium", "healthy ranks may be unable to join, too")
OPEN_FILES = Row(
    "open-files", "unknown", "{missing} did not come, but may be healthy: {limits}", _KEPT_AWAY,
    ("ulimit -Hn", "ulimit -n $(ulimit -Hn)"),
)  # fmt: skip
RESOLVER = Row(
    "resolver", "unknown", "{missing} did not come, but may be healthy: the resolver of {host} does"
    " not answer within a second; torch's store asks it", _KEPT_AWAY,
    ("cat /etc/resolv.conf; time getent hosts $(hostname -i)",),
)  # fmt: skip
OTHER_WORLD = Row(
    "other-world", "mismatch", "{claim}", ("high", "the rank said so itself"),
    ("compare WORLD_SIZE of the processes",),
)  # fmt: skip
CLAIMED_TWICE = Row(
    "claimed-twice", "mismatch", "{claim}", ("high", "both connected to rank 0"),
    ("compare RANK of the processes",),
)  # fmt: skip
WRONG_LOCAL_RANK = Row(
    "wrong-local-rank", "different",
    "{who} has LOCAL_RANK={has} like {twins}; expected {expected}",
    ("high", "launchers number the ranks of a host in the order of their ranks"),
    ("set LOCAL_RANK to the rank's place on its host, from 0",),
)  # fmt: skip
ENDED_EARLY = Row(
    "ended-early", "unknown", "{waited} {were} waiting for the others in stage {stage} when"
    " {signals} ended the job; {suspects} {was} not: look there first",
    ("low", "the deadline had not come: it may only be slow"),
    (_WHILE_IT_HANGS, "or let it run to its --deadline: who is stuck is named then"),
)  # fmt: skip
_OWN_ERROR: tuple[Level, str] = ("low", "an error in oddrank, and no fault of a rank")
_REPORT = ("report it with this text, and with --json FILE",)
STAGE_FAILED = Row(
    "stage-failed", "unknown", "stage {stage} is not judged: {part} raised {error}", _OWN_ERROR,
    _REPORT,
)  # fmt: skip
PART_FAILED = Row(
    "part-failed", "unknown", "{part} is left out: making it raised {error}", _OWN_ERROR, _REPORT,
)  # fmt: skip


def of_round(round: StageRound, found: Sequence[Suspect], run: RunState) -> list[Finding]:
    """Returns the findings of a round that was not completed. found: suspects from blame()."""
    away = [one for one in found if one.rule == "others-joined"]
    excuse = _kept_away(round) if away else []
    named = {rank for one in found for rank in ranks(one.processes)}
    victims = [s for s in unfinished(round) if s.rank not in named]
    told = [
        _finding(one, victims, run)
        for one in found
        if one.cause is not causes.SETTINGS  # each claim is a finding, below
        and not (excuse and one in away)
    ]
    turned_away = [
        (OTHER_WORLD if claim.other_world else CLAIMED_TWICE).found(
            _NOBODY, Evidence(claim.text, str(SOURCE)), stage=JOIN, claim=claim.text
        )
        for claim in round.odd
    ]
    return [*told, *excuse, *turned_away]


def _finding(one: Suspect, victims: Sequence[RankState], run: RunState) -> Finding:
    """Makes the finding of a suspect by its row: its name, and where it and its victims stand."""
    states = [run.states[rank] for rank in ranks(one.processes)]
    points, who = _known(one, states, run)
    if one.cause not in (causes.NEVER_JOINED, causes.UNREACHABLE_ROOT):
        points += _stand(states[:_MOST_TOLD], victims)
    everybody = one.cause is causes.ALL_WAIT
    waiting = [
        Process(s.rank)
        for s in victims
        if everybody or (s.waiting and not s.failed and s.state == "running")
    ]
    only = _loopback(run) if one.rule == "others-joined" and run.nodes > 1 else ""
    told = replace(
        one, who=who, waiting=tuple(waiting), support=tuple(points), raised=only,
        stage="" if one.rule == "behind" else one.stage,
    )  # fmt: skip
    address, port = run.master or ("MASTER_ADDR", "MASTER_PORT")
    steps = next_steps(
        told, view(()), who=who, host=who.host or (states[0].host if states else ""),
        home=run.states[0].host, address=address, port=port,
        launchers=", ".join(sorted({s.host for s in _orphans(run)})),
    )  # fmt: skip
    return replace(finding(told, steps), stage=one.stage)


def _known(one: Suspect, states: Sequence[RankState], run: RunState) -> tuple[list[Point], Who]:
    """Returns the facts known of a suspect besides its state, and its name in sentences."""
    cause, who = one.cause, run.who(ranks(one.processes)) if states else _NOBODY
    texts: list[str] = []
    if one.rule == "launcher-ended-it":
        return _by_launcher(who.ranks, run)
    if cause is causes.UNREACHABLE_ROOT:
        where, _, why = states[0].unreached.partition(": ")
        told = f"{where} cannot connect to {run.states[0].host}, {why}"
        return [Point(told, Source("torch's store"))], Who("link", who.ranks)
    if one.death and (at := (states or [run.states[0]])[0]).raised_at:
        raised = f"rank {at.rank}: its exception was raised there"
        return [Point(raised, Source(at.raised_at))], who
    if cause in (causes.NODE_LOST, causes.LINK_CUT, causes.LOST_EACH_OTHER):
        who = Who("node" if cause is causes.NODE_LOST else "link", who.ranks, states[0].host)
        texts = [f"rank {s.rank}: its guard gave up: {s.parting}" for s in states if s.parting]
    elif cause is causes.NEVER_JOINED:
        only = _loopback(run)
        texts = [f"{run.world - len(states)} of {run.world} ranks came", *([only] if only else [])]
    elif cause is causes.LAUNCHER_GONE:
        left = _orphans(run)
        gone = sorted({f"{s.launcher} (pid {s.launcher_pid}) on {s.host}" for s in left})
        texts = [f"{', '.join(gone)} {'has' if len(gone) == 1 else 'have'} gone"]
        if run.master and any(node_of(s) == node_of(run.states[0]) for s in left):
            texts[0] += f", and with it the store at {run.master[0]}:{run.master[1]}"
    return [Point(text, SOURCE) for text in texts], who


def _by_launcher(missing: Sequence[int], run: RunState) -> tuple[list[Point], Who]:
    """Returns what launcher ended ranks before they had a guard, and their places."""
    ended = [s for s in run.states.values() if s.sigterm and s.sigterm_by == s.launcher_pid]
    mate = next(s for s in ended if 0 <= missing[0] - s.rank + s.local_rank < s.local_world)
    places = [rank - mate.rank + mate.local_rank for rank in missing]
    device = f"local rank{'s' if len(places) > 1 else ''} {fold(places)}"
    launcher, told = f"{mate.launcher} (pid {mate.launcher_pid})", ranks_text(s.rank for s in ended)
    point = Point(f"{launcher} sent SIGTERM to {told}", SOURCE)
    return [point], Who("rank", tuple(missing), mate.host, device)


def _orphans(run: RunState) -> list[RankState]:
    return [s for s in run.states.values() if s.orphaned and s.launcher]


def _stand(own: Sequence[RankState], victims: Sequence[RankState]) -> list[Point]:
    """Returns where each suspect stood, then where its victims stand."""
    texts = []
    for s in own:
        waits = ", waiting for the others" if s.waiting else ""
        orphaned = ", its launcher has gone" if s.orphaned else ""
        texts.append(f"rank {s.rank}: process {s.pid} {s.state}{_step(s.step)}{waits}{orphaned}")
    places: dict[str, list[int]] = {}
    for s in victims:
        if s.contact == "never":
            doing = "not joined yet"
        elif s.failed is not None:
            doing = f"gave up in stage {s.stage}: {s.failed[:200]}"
        else:
            doing = f"{'waiting' if s.waiting else 'at work'} in stage {s.stage}{_step(s.step)}"
        places.setdefault(doing, []).append(s.rank)
    texts += [f"{ranks_text(who)}: {doing}" for doing, who in places.items()]
    return [Point(text, SOURCE) for text in texts]


def _step(step: str) -> str:
    return f", step {step!r}" if step else ""


def _loopback(run: RunState) -> str:
    """Returns that MASTER_ADDR is a loopback address, if no rank of another host came; else ""."""
    address = run.master[0] if run.master else ""
    if address not in ("localhost", "::1") and not address.startswith("127."):
        return ""
    home, hosts = run.states[0].host, {s.host for s in run.states.values() if s.contact != "never"}
    return f"MASTER_ADDR {address} is reachable from {home} only" if hosts == {home} else ""


def _kept_away(round: StageRound) -> list[Finding]:
    """Returns a finding in place of ranks that never joined if healthy ones may be unable to."""
    missing = ranks_text(rank for rank, s in round.states.items() if s.contact == "never")
    told = {"missing": missing, "limits": round.limits, "host": round.states[0].host}
    if round.limits:
        seen = Evidence(round.limits, "open-file limit")
        return [OPEN_FILES.found(_NOBODY, seen, stage=JOIN, **told)]
    if round.states[0].resolver_slow:
        seen = Evidence("no answer within a second", "reverse DNS of its own address")
        return [RESOLVER.found(_NOBODY, seen, stage=JOIN, **told)]
    return []


def wrong_local_rank(run: RunState, rank: int, expected: int, twins: list[int]) -> Finding:
    """Two ranks of a host with one local rank: they would share a GPU."""
    has = run.states[rank].local_rank
    seen = Evidence(f"{ranks_text([rank, *twins])}: LOCAL_RANK={has}", "environment", has)
    told = {"has": has, "twins": ranks_text(twins), "expected": expected}
    return WRONG_LOCAL_RANK.found(run.who([rank]), seen, stage=JOIN, **told)


def ended_early(behind: Sequence[Suspect], run: RunState) -> list[Finding]:
    """A signal ended the job while ranks waited for others: those others are only suspects.

    behind: whom blame() would name if the deadline had come at that moment.
    """
    behind = [one for one in behind if one.cause is causes.HOST_STUCK]
    stood = sorted(rank for one in behind for rank in ranks(one.processes))
    waited = [r for r, s in run.states.items() if r not in stood and (s.waiting or s.published)]
    if not stood or not waited:
        return []
    verbs = {"were": "were" if len(waited) > 1 else "was", "was": "were" if stood[1:] else "was"}
    told = {"waited": ranks_text(waited), "suspects": run.who(stood), "signals": run.signals()}
    points = _stand([run.states[rank] for rank in stood[:_MOST_TOLD]], ())
    seen = [Evidence(point.text, str(SOURCE)) for point in points]
    stage, host = behind[0].stage, run.states[stood[0]].host
    return [ENDED_EARLY.found(_NOBODY, *seen, stage=stage, host=host, **told, **verbs)]


def failed(part: str, error: BaseException, stage: str = "") -> Finding:
    """The plan or the judgement of a stage raised, or a part of the report could not be made.

    part: "its plan", "its judgement"; or a part, or a file, of the report.
    """
    raised = type_and_text(error)[:300]
    *_, frame = traceback.extract_tb(error.__traceback__)
    seen = Evidence(raised, f"{frame.filename}:{frame.lineno}")
    row = STAGE_FAILED if stage else PART_FAILED
    return row.found(_NOBODY, seen, part=part, error=raised, stage=stage)
