"""From a suspect to its finding: who, how sure, from what, what to do next; what rules mean."""

from collections.abc import Sequence

from oddrank.finding import Confidence, Evidence, Finding, Kind, Level, Who
from oddrank.triage import causes
from oddrank.triage.suspects import Point, Suspect
from oddrank.triage.words import call_text, who

_LEVELS: tuple[Level, Level, Level] = ("low", "medium", "high")
_MOST_POINTS = 12
_KINDS: dict[str, Kind] = {"xid": "gpu", "gpu": "gpu", "ib-flap": "link", "link-flap": "link"}
# What the rules of the judges mean: rule -> why its suspect is one, as reports say it.
RULES = {
    "first-end": "no other end is known to have come before",
    "ended-from-outside": "somebody or something ended all ranks, and no other evidence says why",
    "told-to-end": "what ends a job from outside says nothing of its ranks",
    "told-by-run": "oddrank run watched the job, and named it",
    "finished": "the others wait in a call that it never made, and it ended with exit code 0",
    "last-to-end": "all other ranks have ended with exit code 0, and it stands still",
    "same-end-everywhere": "every rank ended by the same: the code is odd, no rank",
    "did-not-end": "the launcher had to kill it, while the others timed out waiting",
    "gone-without-a-word": "all others lost a peer, and nothing says how it ended",
    "absent-in-store": "the others timed out waiting for its key in the store",
    "without-a-timeout": "the others timed out waiting for somebody, and it did not",
    "lost-peers": "ranks lost connections, and nothing that was read says who ended first",
    "lost-one-connection": "it lost a connection, and no other rank ended before it",
    "sizes-differ": "a rank was sent more than it expected: its size or its peer's is wrong",
    "awaited-and-waits-for-nobody": "awaited by other ranks, and waiting for none",
    "awaited-and-silent": "other ranks wait in calls with it, and it left no word of them",
    "not-understood": "no line that is known tells of an end, of a wait, or of ranks that moved on",
    "never-came": "the store counts the processes that came to it",
    "all-inside": "every rank is inside the call: nobody is behind",
    "group-unknown": "nothing that was read tells who belongs to the group",
    "circle": "ranks wait for each other, each inside a call that the next has not entered",
    "in-every-circle": "ranks wait for each other in circles, and all of these pass through it",
    "unusual-call": "it issued another call than it always did, and all others did as always",
    "opposed-messages": "two ranks do the same to each other, and each needs the other's part",
    "different-calls": "ranks issued different calls as the same call of a group",
    "threads-share-a-group": "threads of it were in calls of this group at the same time",
    "paused-on-purpose": "a breakpoint makes it wait, as it says itself",
    "held": "the kernel keeps it from running",
    "no-recorded-call": "every rank has completed what is recorded of what it issued",
    "no-open-call": "every rank has completed what it issued",
    "counts-behind": "it has launched fewer operations than the others, and no rank goes on",
    "init-not-begun": "others set up a communicator, and it printed no line of that",
    "counts-mostly-behind": "most ranks have launched fewer operations than the others",
    "counts-equal": "all ranks have launched the same operations, and no rank goes on",
    "fault-of-its-gpu": "a fault of the GPU that this rank uses",
    "fault-of-its-host": "a fault of the host on which these ranks run",
    "other-settings": "NCCL's diagnostics list the settings of all ranks",
    "one-gpu": "NCCL found that two processes of a communicator use one GPU, and says no more",
    "error-of-its-program": "GPUs report such errors where a program goes wrong on them",
    "fault-of-no-known-rank": "nothing that was read says which rank uses this device",
    "stacks-awaited": "others wait for peers, and its stack shows that it waits for none",
    "stacks-awaited-by-gpu": "others wait for their GPUs, and its stack shows that it does not",
    "stacks-gil-held": "a thread of it holds the GIL while others wait for it",
    "stacks-moving": "others wait for peers, and it stood elsewhere in an earlier stack",
    "stacks-no-answer": "all others wrote dumps of themselves and wait, and it wrote none",
    "stacks-all-outside": "the stacks show no rank that waits for peers",
    "stacks-different-calls": "the stacks show only ranks that wait, in different calls",
    "stacks-awaited-still": "others wait for peers, and in each look it stood at the same place",
    "stacks-all-wait": "the stacks show only ranks that wait",
    "guard-saw-it": "its guard saw it",
    "behind": "it is behind and waits for no rank; slow looks the same",
    "left-alone": "it alone left the collective, and nothing else explains why",
    "guards-saw-it": "the guards saw it",
    "all-guards-lost": "every guard of the node was lost, and no other",
    "own-link": "the link of this host is the one that all others share with it",
    "two-nodes": "two nodes lost each other: either may be the cause",
    "either-host": "either host, or the network between them",
    "one-guard-lost": "its node has other guards that speak",
    "others-joined": "it may only be slow to start; a network that is cut would look the same",
    "launcher-ended-it": "it may also have been slow to start, and the job ended",
    "told-in-store": "it said so itself, through torch's store",
    "slow-store": "the store, or a slow import of torch, may be the reason",
    "nobody-behind": "no rank is behind the others without waiting itself",
    "no-answer": "its watcher, NCCL's or oddrank's, gets no answer from it",
}


def finding(suspect: Suspect, next_: Sequence[str] = (), folder: str = "") -> Finding:
    """Returns the finding of a suspect. next_: commands to type; folder: left out of sources."""
    cause, trouble = suspect.cause, suspect.trouble[0] if suspect.trouble else None
    assert cause.says is not None, f"{cause.name} is no finding"
    condition, text = cause.says(suspect)
    is_unknown = condition == "unknown"
    named = suspect.who or who(suspect.processes or (suspect.waiting if is_unknown else ()))
    if trouble and not (suspect.processes or is_unknown) and cause.about == "device":
        # Nothing ties the fault to a rank.
        device = (trouble.device or "").removeprefix("GPU ") or None
        named = Who(_KINDS.get(trouble.kind, "node"), (), trouble.host, device)
    why = suspect.against[0].text if suspect.against else RULES.get(suspect.rule, suspect.rule)
    against = (Point(f"against it: {p.text}", p.source) for p in suspect.against[1:])
    # Another node would do better: what a program or its user did goes on elsewhere.
    lost = (causes.GPU_STOPPED, causes.UNREACHABLE, causes.NODE_LOST, causes.LINK_CUT)
    is_of_node = cause in lost or (cause is causes.HOST_STUCK and suspect.rule == "held")
    if cause is causes.DEVICE:
        is_of_node = any(t.fatal and t.whose == "hardware" for t in suspect.trouble)
    return Finding(
        condition=condition,
        who=named,
        cause=cause.name,
        what=f"{text}; {suspect.raised}" if suspect.raised else text,
        stage=call_text(suspect.at) or None,
        evidence=tuple(
            Evidence(p.text, str(p.source).removeprefix(folder) if p.source else "triage")
            for p in [*suspect.support, *against][:_MOST_POINTS]
        ),
        confidence=Confidence(_LEVELS[max(0, min(suspect.certainty, 2))], why),
        next=tuple(next_),
        drains_node=is_of_node,
    )
