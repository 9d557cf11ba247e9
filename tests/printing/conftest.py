"""A lock table for tests whose processes hold locks: in the user's, other tests hold some."""

import pytest

from printing import people


@pytest.fixture(scope="module")
def locks(tmp_path_factory):
    """Returns a folder with a lock table that is made: of several makers, one may come too late."""
    folder = tmp_path_factory.mktemp("locks")
    people.run("import oddrank.printing", ODDRANK_DIR=str(folder))
    return folder


@pytest.fixture
def own_locks(locks, monkeypatch):
    monkeypatch.setenv("ODDRANK_DIR", str(locks))
