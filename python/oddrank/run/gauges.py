"""What the judge knows of a running job, as Prometheus's textfile collector reads it. Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence

from oddrank import exposition
from oddrank.control.stages import RankState
from oddrank.report import Report
from oddrank.run import watch

_PREFIX = "oddrank_run_"


def text(
    states: Sequence[RankState],
    *,
    quiet: Mapping[int, float],
    late: Mapping[int, float],
    events: Sequence[str],
    report: Report | None,
    now: float,
) -> str:
    """Returns all families.

    quiet: seconds since each living rank moved. late: by how many seconds a rank is late. events:
    what was told until now. report: None: nothing has happened. now: seconds since 1970.
    """
    came = [state for state in states if state.contact != "never"]
    host_of = {s.rank: s.host for s in states}
    who = {rank: {"rank": rank, "host": host} for rank, host in host_of.items()}
    steps = [(who[s.rank], float(s.step)) for s in came if s.step.isdecimal()]
    families: list[exposition.Family] = [
        ("time_seconds", "When this was written, since 1970.", [({}, now)]),
        ("ranks", "Ranks of the job.", [({}, float(len(states)))]),
        ("rank_alive", "1 while the rank's process lives, 0 after its end.",
         [(who[s.rank], float(not watch.has_ended(s))) for s in came
          if watch.is_heard(s) or watch.has_ended(s)]),
        ("rank_quiet_seconds", "Since the rank's last step or collective.",
         [(who[rank], seconds) for rank, seconds in quiet.items()]),
        ("rank_progress", "Steps, and begins and ends of collectives.",
         [(who[s.rank], float(s.progress)) for s in came]),
        ("rank_step", "The rank's last step.", steps),
        ("rank_late_seconds", "How late the rank comes to collectives, if it stays late.",
         [(who[rank], seconds) for rank, seconds in late.items()]),
        ("events", "What was told until now: deaths, stalls and so on.",
         [({"event": event}, float(count)) for event, count in Counter(events).items()]),
    ]  # fmt: skip
    if report is not None:
        # A script that starts its ranks itself has one guard for all of them.
        families += exposition.of_report(report, lambda rank: host_of.get(rank, ""))
    return exposition.text(_PREFIX, families)
