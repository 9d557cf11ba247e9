"""The examples for clusters: manifests that docs/kubernetes.md tells of, and a script for Ray."""

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from oddrank import cli
from patience import PATIENCE

EXAMPLES = Path(__file__).parents[2] / "examples"
NODE = {"evidence": "/evidence", "shm": "/dev/shm"}


def below(value):
    """Yields all mappings in a manifest."""
    if isinstance(value, dict):
        yield value
    for one in value.values() if isinstance(value, dict) else value:
        if isinstance(one, dict | list):
            yield from below(one)


@pytest.mark.needs("yaml")
@pytest.mark.parametrize(
    ("name", "version", "kind"),
    [
        ("jobset", "jobset.x-k8s.io/v1alpha2", "JobSet"),
        ("trainjob", "trainer.kubeflow.org/v1alpha1", "TrainJob"),
    ],
)
def test_the_manifests_have_what_their_page_says(name, version, kind):
    import yaml

    made = yaml.safe_load((EXAMPLES / "kubernetes" / f"{name}.yaml").read_text())
    assert (made["apiVersion"], made["kind"]) == (version, kind)
    assert made["metadata"]["name"] == "train"  # the label that kubectl asks for
    (pod,) = [one for one in below(made) if "containers" in one]
    assert pod["terminationGracePeriodSeconds"] > 30  # Kubernetes' own: too short for a save
    assert {volume["name"] for volume in pod["volumes"]} == NODE.keys()
    (shm,) = [volume["emptyDir"] for volume in pod["volumes"] if volume["name"] == "shm"]
    assert shm == {"medium": "Memory", "sizeLimit": "16Gi"}
    for container in [*pod["containers"], *pod.get("initContainers", [])]:
        assert {one["name"]: one["mountPath"] for one in container["volumeMounts"]} == NODE
    commands = " ; ".join(" ".join(one["args"]) for one in below(made) if "args" in one)
    calls = re.findall(r"torchrun [^;&]*?-m oddrank (\w+) ([^;&]*)", commands)
    assert [tool for tool, _ in calls] == ["selftest", "run"]  # in this order
    for tool, words in calls:
        command = cli._oddrank.get_command(None, tool)
        given = [word for word in words.split() if word.startswith("-")]
        assert given, tool
        assert set(given) <= {name for one in command.params for name in one.opts}, tool
    assert "--fail-on odd" in calls[0][1]
    assert calls[1][1].split()[-5:] == [
        "--json", "/evidence/verdict.json", "-o", "/evidence", "train.py",
    ]  # fmt: skip
    if kind == "JobSet":
        (node,) = made["spec"]["replicatedJobs"]
        (environ,) = {env["value"] for one in below(pod) for env in one.get("env", [])}
        assert f"--master-addr train-{node['name']}-0-0.train" in environ
        spec = node["template"]["spec"]
        assert f"--nnodes {spec['parallelism']} " in environ
        assert spec["parallelism"] == spec["completions"]


def fits(schema, manifest):
    """Returns whether a schema knows each field, and has all that it needs."""
    try:
        return schema.from_dict(manifest).to_dict() == manifest
    except ValueError:  # pydantic's
        return False


@pytest.mark.needs("yaml")
@pytest.mark.needs("kubeflow")
@pytest.mark.parametrize(
    ("name", "schema"),
    [("jobset", "JobsetV1alpha2JobSet"), ("trainjob", "TrainerV1alpha1TrainJob")],
)
def test_a_manifest_fits_its_schema_and_with_any_field_misspelled_does_not(name, schema):
    import yaml

    schema = getattr(importlib.import_module("kubeflow_trainer_api.models"), schema)
    made = yaml.safe_load((EXAMPLES / "kubernetes" / f"{name}.yaml").read_text())
    assert fits(schema, made)
    for mapping in list(below(made)):
        for field in mapping.keys() - {"nvidia.com/gpu"}:  # names of resources are free
            mapping[f"{field}s"] = mapping.pop(field)
            assert not fits(schema, made), field
            mapping[field] = mapping.pop(f"{field}s")


@pytest.mark.job
@pytest.mark.timeout(600)
@pytest.mark.needs("ray")
@pytest.mark.needs("torch-build")
def test_the_example_of_ray_names_the_worker_that_stands_still(tmp_path):
    # Ray's own limit of 60 s would end the job before it trains, on a machine with other work.
    patient = {"RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": str(PATIENCE.seconds(300))}
    done = subprocess.run(
        [sys.executable, EXAMPLES / "ray_train.py", "--hang", "--report", tmp_path / "v.json"],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
        timeout=PATIENCE.seconds(400),
        env={**os.environ, **patient, "RAY_USAGE_STATS_ENABLED": "0"},
    )  # fmt: skip
    assert re.search(r"oddrank: rank 1 .*is stuck in load_shard \(ray_train.py:22\)", done.stdout)
    assert (tmp_path / "v.json").exists()
