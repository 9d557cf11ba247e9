"""Kubernetes: how containers ended, and conditions of nodes."""

import json

from oddrank.triage.evidence import Notes, kinds
from oddrank.triage.evidence.kubernetes import KIND
from oddrank.triage.facts import Identity, Trouble
from triage.facts_of import item_of, of_kind, reader

log = reader(KIND)
NOON = 1_763_899_200.0


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


def node(kind, status):
    conditions = [{"type": "Ready", "status": "True"}, {"type": kind, "status": status,
                   "message": "why", "lastTransitionTime": "2025-11-23T12:00:00Z"}]  # fmt: skip
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "gpu-7"},
            "status": {"conditions": conditions}}  # fmt: skip


def event(reason):
    return {
        "kind": "Event", "apiVersion": "v1", "reason": reason, "count": 3,
        "message": "Killed process 77", "involvedObject": {"kind": "Node", "name": "gpu-7"},
        "firstTimestamp": "2025-11-23T12:00:00Z", "lastTimestamp": "2025-11-23T12:05:00Z",
    }  # fmt: skip


def test_how_a_container_ended_and_that_a_pod_was_evicted_are_deaths(log, golden):
    said = []
    for terminated, how, signal in (
        ({"exitCode": 137, "reason": "OOMKilled"}, "oom", 9),
        ({"exitCode": 137, "reason": "Error"}, "signal", 9),
        ({"exitCode": 139, "reason": "Error"}, "signal", 11),
        ({"exitCode": 1, "reason": "Error"}, "exit", None),
    ):
        (death,) = log.facts(listed(pod(terminated)))
        assert (death.how, death.signal, death.code) == (how, signal, terminated["exitCode"])
        assert (death.process.host, death.time) == ("train-worker-3", NOON)
        said.append(death.text)
    assert log.facts(listed(pod({"exitCode": 0, "reason": "Completed"}))) == []
    told = pod(reason="Evicted", message="The node was low on resource: ephemeral-storage.")
    (death,) = log.facts(json.dumps(told))
    assert (death.how, death.by) == ("evicted", "scheduler")
    golden("\n".join([*said, death.text]))


def test_rank_is_that_of_the_environment_if_the_pod_is_one_rank(log):
    rank = ("RANK", "3")
    for env, typed, expected in (
        ((rank,), (), 3), ((rank, ("PET_NPROC_PER_NODE", "8")), (), None),
        ((("NODE_RANK", "3"), ("NPROC_PER_NODE", "1")), (), 3), ((), (), None),
        ((rank,), ("torchrun", "--nproc_per_node=8", "train.py"), None),
        ((rank,), ("sh", "-c", "python -m torch.distributed.run train.py"), None),
        ((rank, ("NPROC_PER_NODE", "1")), ("deepspeed", "train.py"), 3),
        ((rank,), ("torchrun", "--nproc-per-node", "1", "train.py"), 3),
        ((rank,), ("python", "train.py"), 3),
    ):  # fmt: skip
        told = pod({"exitCode": 1}, env=env)
        told["spec"]["containers"][0] |= {"command": typed[:1], "args": typed[1:]}
        facts = log.facts(listed(told))
        assert {f.process.rank for f in facts} == {expected}, (env, typed)
        assert bool(of_kind(facts, Identity)) == (expected is not None), (env, typed)


def test_conditions_of_a_node_and_events_that_tell_of_faults_are_troubles(log, golden):
    said = []
    for kind, status, fatal in (
        ("Ready", "Unknown", True), ("DiskPressure", "True", False),
        ("KernelDeadlock", "True", False),
    ):  # fmt: skip
        (trouble,) = log.facts(listed(node(kind, status)))
        assert (trouble.host, trouble.fatal, trouble.time) == ("gpu-7", fatal, NOON), kind
        said.append(trouble.text)
    assert of_kind(log.facts(listed(node("MemoryPressure", "False"))), Trouble) == []
    (trouble,) = log.facts(listed(event("OOMKilling"), event("Pulled")))
    assert (trouble.kind, trouble.host, trouble.count) == ("oom", "gpu-7", 3)
    assert trouble.last - trouble.time == 300
    golden("\n".join([*said, trouble.text]))


def test_a_pod_is_read_once_and_a_log_in_json_is_none(tmp_path):
    def read(text):
        (tmp_path / "x").write_text(text)
        found = kinds.read([item_of(tmp_path / "x")], Notes())
        return {kind.name: len(facts) for kind, _, facts in found}

    assert read(listed(pod({"exitCode": 137, "reason": "OOMKilled"}))) == {"Kubernetes": 1}
    traceback = "[rank3]: Traceback (most recent call last):\n[rank3]: ValueError: boom\n"
    assert {*read('{"kind": "step", "msg": "1"}\n' + traceback)} == {"stacks", "tracebacks"}
