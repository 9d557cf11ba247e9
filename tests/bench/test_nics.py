"""The kernel's word on line rates, where it is one."""

import pytest

from oddrank.bench.nics import infiniband_rates, line_rate


def device(root, name, speed, real=True):
    folder = root / name
    folder.mkdir(parents=True)
    if real:
        (folder / "device").mkdir()
    if speed is not None:
        (folder / "speed").write_text(speed)


@pytest.mark.parametrize(("speed", "rate"), [("100000\n", 100.0), ("25000", 25.0), ("-1\n", None),
                                             ("", None), ("fast", None), (None, None),
                                             ("9" * 100, None)])  # fmt: skip
def test_a_card_has_the_rate_that_the_kernel_tells(speed, rate, tmp_path):
    device(tmp_path, "eth0", speed)
    assert line_rate("eth0", tmp_path) == rate


def test_a_virtual_device_has_a_speed_that_says_nothing(tmp_path):
    device(tmp_path, "veth0", "10000", real=False)
    assert line_rate("veth0", tmp_path) is None


@pytest.mark.parametrize("name", ["", ".", "..", "../eth0", "absent", "a b", "x" * 100])
def test_what_is_no_interface_has_no_rate(name, tmp_path):
    device(tmp_path, "eth0", "100000")
    assert line_rate(name, tmp_path / "eth0") is None
    assert line_rate(name, tmp_path) is None


def test_ports_that_are_active_have_their_rate(tmp_path):
    for name, state, rate in (
        ("mlx5_0", "4: ACTIVE", "400 Gb/sec (4X NDR)"),
        ("mlx5_1", "1: DOWN", "10 Gb/sec (4X SDR)"),
        ("mlx5_2", "4: ACTIVE", "2.5 Gb/sec (1X SDR)"),
        ("mlx5_3", "4: ACTIVE", "?"),
    ):
        port = tmp_path / name / "ports" / "1"
        port.mkdir(parents=True)
        (port / "state").write_text(state)
        (port / "rate").write_text(rate)
    assert infiniband_rates(tmp_path) == (400.0, 2.5)


def test_a_host_without_any_has_none(tmp_path):
    assert infiniband_rates(tmp_path / "absent") == ()
