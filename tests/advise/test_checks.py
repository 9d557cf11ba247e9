"""Each known bad combination of variables is found, and its good neighbour is not."""

import re

from hypothesis import given
from hypothesis import strategies as st

from oddrank.advise import checks, findings
from oddrank.advise.environ import Process
from oddrank.advise.variables import TABLE

JOB = {"world": 16, "local_world": 8, "nodes": 2, "processors": 64, "of_host": 64,
       "torch": (2, 13)}  # fmt: skip
FINE = {"OMP_NUM_THREADS": "8"}


def causes(variables=None, **place):
    process = Process({**FINE, **(variables or {})}, **{**JOB, **place})
    return [hit.cause for hit in checks.judge(process)]


BAD = (
    ("misspelt", {"NCCL_DEBGU": None}, {}), ("impossible", {"NCCL_DEBUG": "BOGUS"}, {}),
    ("impossible", {"NCCL_IB_TIMEOUT": "abc"}, {}),
    ("impossible", {"NCCL_P2P_DISABLE": "true"}, {}), ("impossible", {"NCCL_BUFFSIZE": "4M"}, {}),
    ("impossible", {"NCCL_NVLS_ENABLE": "3"}, {}),
    ("impossible", {"NCCL_NET_GDR_LEVEL": "NEAR"}, {}),
    ("impossible", {"TORCH_NCCL_ASYNC_ERROR_HANDLING": "4"}, {}),
    ("impossible", {"TORCH_NCCL_DESYNC_DEBUG": "on"}, {}),
    ("impossible", {"TORCH_DISTRIBUTED_DEBUG": "ALL"}, {}),
    ("impossible", {"CUDA_DEVICE_ORDER": "PCI"}, {}),
    ("impossible", {"CUDA_DEVICE_MAX_CONNECTIONS": "33"}, {}),
    ("impossible", {"OMP_NUM_THREADS": "-1"}, {"local_world": 1}),
    ("impossible", {"OMP_NUM_THREADS": "4,0"}, {"local_world": 1}),
    ("renamed", {"NCCL_ASYNC_ERROR_HANDLING": "1"}, {}),
    ("removed", {"NCCL_IB_CUDA_SUPPORT": "1"}, {}),
    ("two-names", {"NCCL_ENABLE_TIMING": "1", "TORCH_NCCL_ENABLE_TIMING": "0"}, {}),
    ("two-names", {"PYTORCH_ALLOC_CONF": "a:1", "PYTORCH_CUDA_ALLOC_CONF": "a:2"}, {}),
    ("launch-blocking", {"CUDA_LAUNCH_BLOCKING": "1"}, {}),
    ("left-over", {"NCCL_P2P_DISABLE": "1"}, {}), ("left-over", {"NCCL_IB_DISABLE": "1"}, {}),
    ("left-over", {"NCCL_NET_GDR_LEVEL": "LOC"}, {}),
    ("left-over", {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}, {}),
    ("debug-log", {"NCCL_DEBUG": "INFO"}, {"world": 1024}),
    ("debug-log", {"NCCL_DEBUG": "trace"}, {"world": 64}),
    ("shared-log", {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_FILE": "/tmp/nccl.log"}, {}),
    ("detail", {"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}, {}),
    ("blocking-wait", {"TORCH_NCCL_BLOCKING_WAIT": "1"}, {}),
    ("blocking-wait",
     {"TORCH_NCCL_BLOCKING_WAIT": "1", "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1"}, {}),
    ("no-timeout", {"TORCH_NCCL_ASYNC_ERROR_HANDLING": "0"}, {}),
    ("recorder-off", {"TORCH_FR_BUFFER_SIZE": "0"}, {}),
    ("recorder-off", {"TORCH_NCCL_TRACE_BUFFER_SIZE": "0"}, {}),
    ("recorder-unset", {}, {"torch": (2, 6)}), ("no-dump", {"TORCH_NCCL_DUMP_ON_TIMEOUT": "0"}, {}),
    ("no-dump", {"TORCH_NCCL_ENABLE_MONITORING": "0"}, {}),
    ("threads", {"OMP_NUM_THREADS": "9"}, {}),
    ("expandable-segments",
     {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
      "TORCH_NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK": "1"}, {}),
    ("endless-timeout", {"NCCL_IB_TIMEOUT": "0"}, {}),
    ("endless-timeout", {"NCCL_IB_TIMEOUT": "32"}, {}),
    ("loopback", {"NCCL_SOCKET_IFNAME": "lo"}, {}), ("loopback", {"GLOO_SOCKET_IFNAME": "lo"}, {}),
    ("sockets", {"NCCL_SOCKET_NTHREADS": "16", "NCCL_NSOCKS_PERTHREAD": "8"}, {}),
    ("ll128", {"NCCL_PROTO": "LL128"}, {}),
    ("ll128", {"NCCL_PROTO": "^simple;allreduce:ll,ll128"}, {}),
    ("prefix", {"NCCL_IB_HCA": "mlx5_1:1"}, {"devices": ("mlx5_1", "mlx5_10")}),
)  # fmt: skip
GOOD = (
    ({}, {}), ({"NCCL_DEBUG": "INFO"}, {"world": 8, "nodes": 1}),
    ({"NCCL_DEBUG": "WARN"}, {"world": 1024}),
    ({"NCCL_DEBUG": "INFO", "NCCL_DEBUG_FILE": "/tmp/nccl.%h.%p"}, {"world": 1024}),
    ({"NCCL_DEBUG": "INFO", "NCCL_DEBUG_FILE": "/dev/stderr"}, {}),
    ({"CUDA_LAUNCH_BLOCKING": "0", "NCCL_P2P_DISABLE": "0"}, {}),
    ({"NCCL_P2P_LEVEL": "NVL", "NCCL_NVLS_ENABLE": "1"}, {}),
    ({"TORCH_NCCL_BLOCKING_WAIT": "0", "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1"}, {}),
    ({"TORCH_NCCL_BLOCKING_WAIT": "1", "TORCH_NCCL_ASYNC_ERROR_HANDLING": "0"}, {}),
    ({"TORCH_FR_BUFFER_SIZE": "2000"}, {"torch": (2, 6)}),
    ({}, {"torch": (2, 6), "world": 1, "local_world": 1, "nodes": 1}), ({}, {"torch": ()}),
    ({"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}, {}),
    ({"NCCL_IB_TIMEOUT": "22", "NCCL_SOCKET_NTHREADS": "4", "NCCL_NSOCKS_PERTHREAD": "4"}, {}),
    ({"NCCL_SOCKET_IFNAME": "lo"}, {"nodes": 1}), ({"NCCL_PROTO": "^LL128"}, {}),
    ({"NCCL_PROTO": "^simple,ll128"}, {}),
    ({"NCCL_IB_HCA": "=mlx5_1"}, {"devices": ("mlx5_1", "mlx5_10")}),
    ({"NCCL_IB_HCA": "mlx5"}, {"devices": ("mlx5_1", "mlx5_10")}),
    ({"NCCL_UNHEARD_OF": None}, {}), ({"OMP_NUM_THREADS": "64"}, {"local_world": 1}),
    ({"OMP_NUM_THREADS": "64,1"}, {"local_world": 1}),
    ({"NCCL_BUFFSIZE": "0x400000", "NCCL_IB_GID_INDEX": "-1", "NCCL_CUMEM_ENABLE": "-2"}, {}),
    ({"NCCL_DEBUG": "", "NCCL_IB_TIMEOUT": " 22 ", "NCCL_P2P_LEVEL": "3"}, {}),
    ({"NCCL_DEBUG": "version", "NCCL_SOCKET_FAMILY": "af_inet6"}, {}),
    ({"TORCH_NCCL_DESYNC_DEBUG": "True", "TORCH_NCCL_NAN_CHECK": "no"}, {}),
    ({"OMP_PROC_BIND": "spread, close", "CUDA_MODULE_LOADING": "EAGER"}, {}),
)  # fmt: skip


def test_a_bad_combination_is_found_once_and_alone_and_its_good_neighbour_is_not():
    for cause, variables, place in BAD:
        assert causes(variables, **place) == [cause], (variables, place)
    for variables, place in GOOD:
        assert causes(variables, **place) == [], (variables, place)


def test_unset_threads_hurt_unless_each_rank_is_bound_to_its_processors():
    for bound_to, found in ((64, ["threads-unset"]), (8, [])):
        process = Process({}, **{**JOB, "processors": bound_to})
        assert [hit.cause for hit in checks.judge(process)] == found


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
        (hit,) = checks.judge(Process({"OMP_NUM_THREADS": "1", name: value}, **many))
        told = findings.finding(hit, findings.who([Process({})], "n1", "this environment"))
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


def ranks(*values, name="NCCL_ALGO"):
    return [Process({} if v is None else {name: v}, rank=r) for r, v in enumerate(values)]


def test_ranks_that_must_agree_and_do_not():
    ((hit, rarest),) = checks.judge_together(ranks("Ring", "Ring", "Tree", "Ring"))
    assert (hit.cause, hit.names) == ("differs", ("NCCL_ALGO",))
    assert [one.rank for one in rarest] == [2]
    ((_, rarest),) = checks.judge_together(ranks("Ring", None, "Ring"))
    assert [one.rank for one in rarest] == [1]
    assert not list(checks.judge_together(ranks("Ring", "Ring")))
    assert not list(checks.judge_together(ranks("INFO", None, name="NCCL_DEBUG")))


@given(
    st.dictionaries(st.sampled_from(sorted(TABLE)), st.none() | st.text(max_size=12), max_size=8),
    st.integers(1, 4096),
)
def test_every_check_takes_any_value_and_every_hit_has_words(variables, world):
    process = Process(variables, world=world, local_world=min(world, 8), rank=0,
                      devices=("mlx5_0",), torch=(2, 7))  # fmt: skip
    for hit in checks.judge(process):
        told = findings.finding(hit, findings.who([process], "n1", "")).what
        assert told.startswith("rank 0 (n1): ")


@given(st.sampled_from(sorted(TABLE)), st.text("SECRET", min_size=12, max_size=20))
def test_no_sentence_has_a_value_that_may_be_a_secret(name, value):
    if findings.value_text(name, value) is not None:
        return
    for hit in checks.judge(Process({name: value}, **JOB)):
        told = findings.finding(hit, findings.who([Process({})], "n1", "alone"))
        assert value not in str(told)
