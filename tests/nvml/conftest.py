"""The fake NVML, built once for all tests of this folder."""

import pytest

from nvml import fake_nvml


@pytest.fixture(scope="session")
def fakes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Builds the libraries of two drivers: today's, and one with former names."""
    return {
        "new": fake_nvml.build(tmp_path_factory.mktemp("new")),
        "old": fake_nvml.build(tmp_path_factory.mktemp("old"), old=True),
    }
