"""The causes of `oddrank logs` and their sentences; those of first-error are triage's."""

from collections.abc import Sequence

from oddrank.finding import Confidence, Evidence, Finding, Who
from oddrank.logs.first_error import Said, Told
from oddrank.logs.silence import Silence, Voice
from oddrank.report import Report
from oddrank.triage import findings
from oddrank.triage.next_steps import next_steps

_MOST_EVIDENCE = 8


def first_error(told: Told, data: dict[str, object], lost: str) -> Report:
    """Makes the report of first-error. lost: which logs were not read, for an end of a sentence."""
    found = [
        findings.finding(s, next_steps(s, told.triage.view), told.triage.folder)
        for s in told.triage.suspects
    ]
    plural = "s" if told.files != 1 else ""
    failures = told.failures
    own = [said for said in failures if said.why == "own"]
    if len(own) > 1 and (told.basis == "unknown" or any(said.carried for said in own)):
        found = [_unordered(own)]
    elif failures and not found:
        found = [_only_said(failures[0])]
    why = f"read: {told.files} log{plural}"
    if not failures:
        why = f"no line of {told.files} log{plural} tells of a failure"
    size = told.triage.view.world
    return Report.of("logs first-error", {"size": size} if size else {}, data, found,
                     complete=bool(found) or not lost, why=why + lost)  # fmt: skip


def _unordered(own: Sequence[Said]) -> Finding:
    names = "; ".join(said.who for said in own[:_MOST_EVIDENCE])
    return Finding(
        condition="unknown", who=Who("process", (), None, own[0].who), cause="no-order",
        what=f"{names}: each failed in its own way, and no times tell which was first",
        evidence=tuple(Evidence(s.text, str(s.source)) for s in own[:_MOST_EVIDENCE]),
        confidence=Confidence("low", "lines without times in several logs have no order"),
        next=("give the log of the launcher, or logs whose lines name times",),
    )  # fmt: skip


def _only_said(first: Said) -> Finding:
    return Finding(
        condition="unknown", who=Who("process", (), None, first.who), cause="first-said",
        what=f"{first.who} said first that it failed, and nothing says whose fault that was",
        evidence=(Evidence(first.text, str(first.source)),),
        confidence=Confidence("low", "a log tells who spoke first, not who was at fault"),
        next=("oddrank triage PATH... with stacks or dumps of the ranks",),
    )  # fmt: skip


def silent(
    silence: Silence | None, comparable: int, data: dict[str, object], lost: str = ""
) -> Report:
    """Makes the report of silent. lost: which logs could not be read, as the end of a sentence."""
    if silence is None:
        why = f"{comparable} ranks speak regularly, and none stopped before the others"
        if comparable < 2:
            why = ("fewer than two ranks speak regularly: there is nothing to measure silence by"
                   if data["unit"] else
                   "the lines name no times, and lines of several files have no common order:"
                   " silence can't be measured")  # fmt: skip
        complete = comparable >= 2 and not lost
        return Report.of("logs silent", {}, data, (), complete=complete, why=why + lost)
    found = [_many(silence)] if silence.most else [_one(voice, silence) for voice in silence.voices]
    others = findings.count([voice.process for voice in silence.others])
    return Report.of("logs silent", {}, data, found, complete=True, why=f"spoke on: {others}")


def _one(voice: Voice, silence: Silence) -> Finding:
    who = findings.who([voice.process])
    sure = len(silence.others) > 1
    return Finding(
        condition="suspicious", who=who, cause="silent",
        what=f"{who} has said nothing for {_length(voice.silent, silence)}, while"
             f" {findings.count([v.process for v in silence.others])} went on",
        evidence=(_evidence(voice, silence),),
        confidence=Confidence(
            "medium" if sure else "low",
            "silence is not death: it may have ended, or print no more"
            if sure else "there is one other rank only: either may be the odd one",
        ),
        next=("oddrank triage PATH... with stacks: where does it stand?",),
    )  # fmt: skip


def _many(silence: Silence) -> Finding:
    """Most ranks stopped: they may be stuck, have ended, or leave the talking to a few."""
    stopped = findings.count([voice.process for voice in silence.voices])
    others = findings.count([voice.process for voice in silence.others])
    return Finding(
        condition="unknown", who=findings.who([v.process for v in silence.voices]),
        cause="most-silent",
        what=f"{stopped} stopped talking, and only {others} went on: which of them are odd, a log"
             " can't tell",
        evidence=tuple(_evidence(v, silence) for v in silence.voices[:_MOST_EVIDENCE]),
        confidence=Confidence("low", "the silent ones are not the fewer ones"),
        next=("oddrank triage PATH... with stacks of the ranks",),
    )  # fmt: skip


def _evidence(voice: Voice, silence: Silence) -> Evidence:
    peers: Sequence[float] = sorted(other.silent for other in silence.others)
    text = f"its longest pause before was {_length(voice.longest, silence)}; silent for"
    place = f"{voice.file}:{voice.last_line}"
    return Evidence(text, place, voice.silent, silence.unit, peers[len(peers) // 2])


def _length(value: float, silence: Silence) -> str:
    return f"{value:.3g} s" if silence.unit == "s" else f"{value:.0f} lines"
