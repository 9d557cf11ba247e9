"""Each known bad combination of variables is found, and its good neighbour is not."""

import json
import re

from hypothesis import given
from hypothesis import strategies as st

from oddrank.advise import checks
from oddrank.advise.checks import Process
from oddrank.advise.variables import SHOWN, TABLE
from texts import rows

JOB = {"world": 16, "local_world": 8, "nodes": 2, "processors": 64, "of_host": 64,
       "torch": (2, 13)}  # fmt: skip
FINE = {"OMP_NUM_THREADS": "8"}


def causes(variables=None, **place):
    place = {k: tuple(v) if isinstance(v, list) else v for k, v in place.items()}
    process = Process({**FINE, **(variables or {})}, **{**JOB, **place})
    return [one.cause for one in checks.judge(process)]


BAD = [(row[0], *map(json.loads, row[1:])) for row in rows(__file__, "bad")]
GOOD = [[*map(json.loads, row)] for row in rows(__file__, "good")]


def test_a_bad_combination_is_found_once_and_alone_and_its_good_neighbour_is_not():
    for cause, variables, place in BAD:
        assert causes(variables, **place) == [cause], (variables, place)
    for variables, place in GOOD:
        assert causes(variables, **place) == [], (variables, place)


def test_unset_threads_hurt_unless_each_rank_is_bound_to_its_processors():
    for bound_to, found in ((64, ["threads-unset"]), (8, [])):
        process = Process({}, **{**JOB, "processors": bound_to})
        assert [one.cause for one in checks.judge(process)] == found


def test_impossible_values_are_told_with_those_that_are_possible_and_threads_with_what_fits(golden):
    place = {"world": 1, "local_world": 1}
    said = []
    for line in (
        "NCCL_IB_TIMEOUT=abc", "NCCL_SOCKET_FAMILY=IPv7", "NCCL_DEBUG=BOGUS",
        "NCCL_SHM_DISABLE=true", "TORCH_DISTRIBUTED_DEBUG=ALL", "OMP_NUM_THREADS=-1",
        "CUDA_DEVICE_MAX_CONNECTIONS=0", "OMP_NUM_THREADS=16",
    ):  # fmt: skip
        name, value = line.split("=")
        many = JOB if value == "16" else place
        (told,) = checks.judge(Process({"OMP_NUM_THREADS": "1", name: value}, **many))
        assert value == "16" or told.evidence[-1].source == TABLE[name].source
        said += [line, f"  {told.what}", *(f"  {command}" for command in told.next)]
    golden("\n".join(said))


def test_a_variable_takes_its_default_and_values_that_its_meaning_names():
    for row in TABLE.values():
        default = row.default.split(" ")[0].rstrip(",")
        if row.takes and default not in ("", "off", "chosen", "by", "as", "the"):
            assert row.allows(default), row.name
        for value in re.findall(r"(?:^|: |, )(\d):? [a-z]", row.does):
            assert not row.takes or row.allows(value), row.name


@given(
    st.dictionaries(st.sampled_from(sorted(TABLE)), st.none() | st.text(max_size=12), max_size=8),
    st.integers(1, 4096),
)
def test_every_check_takes_any_value_and_every_finding_has_words(variables, world):
    process = Process(variables, world=world, local_world=min(world, 8),
                      devices=("mlx5_0",), torch=(2, 7))  # fmt: skip
    for finding in checks.judge(process):
        assert finding.what


@given(st.sampled_from(sorted(TABLE)), st.text("SECRET", min_size=12, max_size=20))
def test_no_sentence_has_a_value_that_may_be_a_secret(name, value):
    if name in SHOWN:
        return
    for finding in checks.judge(Process({name: value}, **JOB)):
        assert value not in str(finding)
