"""The job's name is one safe file name for every environment."""

from hypothesis import given
from hypothesis import strategies as st

from launch import environments as made
from oddrank import launch
from oddrank.job import job_folder

# Values that a variable can have: no NUL; bytes that are not UTF-8 are lone surrogates.
TEXT = st.text(st.characters(exclude_characters="\0"), min_size=1, max_size=300)


@given(TEXT)
def test_any_run_id_address_and_job_id_become_one_component_of_a_path(text):
    for environ in (
        {**made.TORCHRUN_IN_STEP, "TORCHELASTIC_RUN_ID": text},
        {"MASTER_ADDR": text, "MASTER_PORT": "1"},
        {**made.STEP[0], "SLURM_JOB_ID": text},
    ):
        job = launch.current(environ).job
        assert job not in ("", ".", "..")
        assert "/" not in job
        assert ":" not in job  # scp and rsync take what is before it for a host
        assert job.isascii()
        assert job.isprintable()
        assert len(job) < 250


def test_all_ranks_of_a_step_share_a_job_and_two_steps_do_not():
    one = {launch.current(task).job for task in made.STEP}
    two = {launch.current({**task, "SLURM_STEP_ID": "1"}).job for task in made.STEP}
    assert len(one) == len(two) == 1
    assert one != two


def test_the_jobs_folder_is_in_the_folder_that_the_user_chose(tmp_path):
    environ = {**made.STEP[0], "ODDRANK_DIR": str(tmp_path)}
    assert job_folder(environ) == tmp_path / launch.current(environ).job


def test_torchruns_none_is_no_name():
    for run_id in ("none", ""):
        environ = made.torchrun(0, 0, 0, local_world=1, nodes=1) | {"TORCHELASTIC_RUN_ID": run_id}
        assert launch.current(environ).job == "n1_43091"
