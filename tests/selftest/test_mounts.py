"""Finds the file system of a path in the kernel's list of mounts."""

import pytest

from oddrank.selftest.stages.file_system import mount_of

LIST = """\
21 1 0:20 / / rw,relatime - ext4 /dev/vda1 rw
22 21 0:21 / /data rw shared:1 master:2 - nfs4 server:/export rw,vers=4.2
23 22 0:22 / /data/with\\040space rw - lustre mgs@tcp:/scratch rw
24 21 0:23 / /data2 rw - autofs auto rw
25 24 0:24 / /data2 rw - nfs other:/second rw
this is no line of it
26
"""


@pytest.mark.parametrize(
    ("path", "mount"),
    [
        ("/etc", "ext4 /dev/vda1"),
        ("/data", "nfs4 server:/export"),
        ("/data/", "nfs4 server:/export"),
        ("/data/set/a", "nfs4 server:/export"),
        ("/data/with space/b", "lustre mgs@tcp:/scratch"),
        ("/data2/x", "nfs other:/second"),
        ("/database", "ext4 /dev/vda1"),
        ("/data/../etc", "ext4 /dev/vda1"),
    ],
)
def test_the_innermost_and_last_mount_is_what_a_path_lies_on(path, mount):
    assert mount_of(path, LIST) == mount


def test_an_unreadable_list_tells_nothing():
    assert mount_of("/data", "") == ""
