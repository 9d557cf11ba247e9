"""Kubernetes: how containers ended, and conditions of nodes."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oddrank.triage.evidence import Item, Notes, kinds
from oddrank.triage.evidence.kubernetes import KIND
from oddrank.triage.facts import Death, Identity, Trouble
from triage.facts_of import Texts, item_of

NOON = 1_763_899_200.0


@pytest.fixture
def log(tmp_path):
    return Texts(tmp_path, KIND)


def pod(terminated=None, name="train-worker-3", env=(), **status):
    if terminated is not None:
        ended = {"finishedAt": "2025-11-23T12:00:00Z", **terminated}
        status["containerStatuses"] = [
            {"name": "pytorch", "restartCount": 0, "state": {"terminated": ended}}
        ]
    containers = [{"name": "pytorch", "env": [{"name": k, "value": v} for k, v in env]}]
    return {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"nodeName": "gpu-7", "containers": containers}, "status": status,
    }  # fmt: skip


def listed(*rows):
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": rows}, indent=4)


def deaths(facts):
    return [(f.how, f.signal, f.code, f.process.host) for f in facts if isinstance(f, Death)]


@pytest.mark.parametrize(
    ("terminated", "how", "signal"),
    [
        ({"exitCode": 137, "reason": "OOMKilled"}, "oom", 9),
        ({"exitCode": 137, "reason": "Error"}, "signal", 9),
        ({"exitCode": 139, "reason": "Error"}, "signal", 11),
        ({"exitCode": 1, "reason": "Error"}, "exit", None),
    ],
)
def test_a_container_that_ended_is_a_death(log, terminated, how, signal):
    facts = log.facts(listed(pod(terminated)))
    assert deaths(facts) == [(how, signal, terminated["exitCode"], "train-worker-3")]
    (death,) = facts
    assert death.time == NOON


def test_a_container_that_completed_is_none(log):
    assert log.facts(listed(pod({"exitCode": 0, "reason": "Completed"}))) == []


def test_an_evicted_pod_is_a_death_by_the_scheduler(log):
    told = pod(reason="Evicted", message="The node was low on resource: ephemeral-storage.")
    (death,) = log.facts(json.dumps(told))
    assert (death.how, death.by) == ("evicted", "scheduler")
    assert "ephemeral-storage" in death.text


@pytest.mark.parametrize(
    ("env", "rank"),
    [
        ((("RANK", "3"),), 3),
        ((("RANK", "3"), ("PET_NPROC_PER_NODE", "8")), None),
        ((("NODE_RANK", "3"), ("NPROC_PER_NODE", "1")), 3),
        ((), None),
    ],
)
def test_the_rank_is_that_of_the_environment_if_the_pod_is_one_rank(log, env, rank):
    facts = log.facts(listed(pod({"exitCode": 1}, env=env)))
    assert {f.process.rank for f in facts} == {rank}
    assert bool([f for f in facts if isinstance(f, Identity)]) == (rank is not None)


def node(kind, status):
    conditions = [{"type": "Ready", "status": "True"}, {"type": kind, "status": status,
                   "message": "why", "lastTransitionTime": "2025-11-23T12:00:00Z"}]  # fmt: skip
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "gpu-7"},
            "status": {"conditions": conditions}}  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "status", "told"),
    [
        ("Ready", "Unknown", [("gpu-7", True)]),
        ("DiskPressure", "True", [("gpu-7", False)]),
        ("KernelDeadlock", "True", [("gpu-7", False)]),
        ("MemoryPressure", "False", []),
    ],
)
def test_conditions_of_a_node_are_troubles_of_the_host(log, kind, status, told):
    facts = log.facts(listed(node(kind, status)))
    assert [(f.host, f.fatal) for f in facts if isinstance(f, Trouble)] == told


def test_events_that_tell_of_faults_are_troubles(log):
    event = {
        "kind": "Event", "apiVersion": "v1", "reason": "OOMKilling", "count": 3,
        "message": "Killed process 77", "involvedObject": {"kind": "Node", "name": "gpu-7"},
        "firstTimestamp": "2025-11-23T12:00:00Z", "lastTimestamp": "2025-11-23T12:05:00Z",
    }  # fmt: skip
    pulled = {**event, "reason": "Pulled"}
    (trouble,) = log.facts(listed(event, pulled))
    assert (trouble.kind, trouble.host, trouble.count) == ("oom", "gpu-7", 3)
    assert trouble.last - trouble.time == 300


def test_json_that_is_cut_off_is_a_note(tmp_path):
    path = tmp_path / "pods.json"
    path.write_text(listed(pod({"exitCode": 1}))[:-9])
    notes = Notes()
    item = Item("pods.json", path, path.stat().st_size, path.read_bytes())
    assert KIND.sniff(item)
    assert list(KIND.read([item], notes)) == []
    assert notes.lines == ["pods.json: JSON of Kubernetes that is cut off or broken"]


KEYS = [
    "kind", "metadata", "name", "spec", "status", "containerStatuses", "state", "terminated",
    "conditions", "type", "exitCode", "reason", "containers", "env", "involvedObject",
]  # fmt: skip
TREES = st.recursive(
    st.none() | st.integers() | st.sampled_from(["Pod", "Node", "Event", "True", "OOMKilling"]),
    lambda c: st.lists(c, max_size=3) | st.dictionaries(st.sampled_from(KEYS), c, max_size=6),
)


@given(TREES, st.sampled_from(["Pod", "Node", "Event"]))
def test_objects_of_any_shape_never_raise(tmp_path_factory, tree, kind):
    path = tmp_path_factory.mktemp("garbage") / "k.json"
    row = tree if isinstance(tree, dict) else {"status": tree, "metadata": tree}
    path.write_text(json.dumps({"kind": "List", "items": [{**row, "kind": kind}, tree]}))
    content = path.read_bytes()
    list(KIND.read([Item("k.json", path, len(content), content)], Notes()))


@pytest.mark.parametrize(
    ("typed", "env", "rank"),
    [
        (["torchrun", "--nproc_per_node=8", "train.py"], (), None),
        (["sh", "-c", "python -m torch.distributed.run train.py"], (), None),
        (["deepspeed", "train.py"], (("NPROC_PER_NODE", "1"),), 3),
        (["torchrun", "--nproc-per-node", "1", "train.py"], (), 3),
        (["python", "train.py"], (), 3),
    ],
)
def test_where_a_launcher_stands_in_the_command_rank_is_the_nodes(log, typed, env, rank):
    told = pod({"exitCode": 1}, env=(("RANK", "3"), *env))
    told["spec"]["containers"][0]["command"] = typed[:1]
    told["spec"]["containers"][0]["args"] = typed[1:]
    assert {f.process.rank for f in log.facts(listed(told))} == {rank}


def test_a_pod_is_read_once(tmp_path):
    path = tmp_path / "pods.json"
    path.write_text(listed(pod({"exitCode": 137, "reason": "OOMKilled"})))
    found = [(kind.name, len(facts)) for kind, _, facts in kinds.read([item_of(path)], Notes())]
    assert found == [("Kubernetes", 1)]


def test_a_log_in_json_is_no_object_of_kubernetes(tmp_path):
    path = tmp_path / "train.log"
    path.write_text('{"kind": "step", "msg": "1"}\n[rank3]: Traceback (most recent call last):\n'
                    "[rank3]: ValueError: boom\n")  # fmt: skip
    names = {kind.name for kind, *_ in kinds.read([item_of(path)], Notes())}
    assert names == {"stacks", "tracebacks"}


def test_an_infinite_exit_code_is_a_note(tmp_path):
    path = tmp_path / "pods.json"
    path.write_text(listed(pod({"exitCode": float("inf")}), pod({"exitCode": 1})))
    notes = Notes()
    (death,) = KIND.read([item_of(path)], notes)
    assert death.code == 1
    assert notes.lines == ["pods.json: 1 objects of Kubernetes with unexpected values"]
