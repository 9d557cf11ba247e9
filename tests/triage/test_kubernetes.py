"""Kubernetes: whose a document is. test_read.py has what each one says."""

import json

from oddrank.inputs import Notes
from oddrank.triage.evidence import kinds
from triage.facts_of import item_of


def pod(terminated=None, name="train-worker-3", **status):
    if terminated is not None:
        ended = {"finishedAt": "2025-11-23T12:00:00Z", **terminated}
        status["containerStatuses"] = [
            {"name": "pytorch", "restartCount": 0, "state": {"terminated": ended}}
        ]
    return {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"nodeName": "gpu-7", "containers": [{"name": "pytorch"}]}, "status": status,
    }  # fmt: skip


def listed(*rows):
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": rows}, indent=4)


def test_a_pod_is_read_once_and_a_log_in_json_is_none(tmp_path):
    def read(text):
        (tmp_path / "x").write_text(text)
        found = kinds.read([item_of(tmp_path / "x")], Notes())
        return {kind.name: len(facts) for kind, _, facts in found}

    assert read(listed(pod({"exitCode": 137, "reason": "OOMKilled"}))) == {"Kubernetes": 1}
    traceback = "[rank3]: Traceback (most recent call last):\n[rank3]: ValueError: boom\n"
    assert {*read('{"kind": "step", "msg": "1"}\n' + traceback)} == {"stacks", "tracebacks"}
