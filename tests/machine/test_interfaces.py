"""The kernel's word on line rates, where it is one."""

from oddrank.machine.interfaces import infiniband_rates, line_rate


def device(root, name, speed, real=True):
    folder = root / name
    folder.mkdir(parents=True)
    if real:
        (folder / "device").mkdir()
    if speed is not None:
        (folder / "speed").write_text(speed)


def test_a_card_has_the_rate_that_the_kernel_tells_and_virtual_or_odd_ones_have_none(tmp_path):
    for number, (speed, rate) in enumerate((
        ("100000\n", 100.0), ("25000", 25.0), ("-1\n", None), ("", None), ("fast", None),
        (None, None), ("9" * 100, None),
    )):  # fmt: skip
        device(tmp_path, f"eth{number}", speed)
        assert line_rate(f"eth{number}", tmp_path) == rate, speed
    device(tmp_path, "veth0", "10000", real=False)
    assert line_rate("veth0", tmp_path) is None
    for name in ("", ".", "..", "../eth0", "absent", "a b", "x" * 100):
        assert line_rate(name, tmp_path / "eth0") is None, name
        assert line_rate(name, tmp_path) is None, name


def port(root, name, number, rate, state="4: ACTIVE"):
    folder = root / name / "ports" / str(number)
    folder.mkdir(parents=True)
    (folder / "state").write_text(state)
    (folder / "rate").write_text(rate)


def test_ports_that_are_active_have_their_rate(tmp_path):
    port(tmp_path, "mlx5_0", 1, "400 Gb/sec (4X NDR)")
    port(tmp_path, "mlx5_1", 1, "10 Gb/sec (4X SDR)", state="1: DOWN")
    port(tmp_path, "mlx5_2", 1, "2.5 Gb/sec (1X SDR)")
    port(tmp_path, "mlx5_3", 1, "?")
    assert infiniband_rates(root=tmp_path) == {"mlx5_0:1": 400.0, "mlx5_2:1": 2.5}


def test_of_the_ports_those_that_nccl_is_told_to_use_are_left(tmp_path):
    for name, ports in (("mlx5_0", 1), ("mlx5_1", 2), ("mlx5_10", 1), ("mlx5_bond", 1)):
        for number in range(1, ports + 1):
            port(tmp_path, name, number, "400 Gb/sec (4X NDR)")
    for only, left in (
        ("", "0:1 1:1 1:2 10:1 bond:1"), ("mlx5", "0:1 1:1 1:2 10:1 bond:1"),
        ("mlx5_1", "1:1 1:2 10:1"), ("mlx5_0,mlx5_1:2", "0:1 1:2"), ("=mlx5_1", "1:1 1:2"),
        ("=mlx5_1:1,mlx5_0", "0:1 1:1"), ("^mlx5_1", "0:1 bond:1"),
        ("^mlx5_1:2,mlx5_bond", "0:1 1:1 10:1"), ("^=mlx5_1,mlx5_bond", "0:1 10:1"),
        ("=mlx5_0::0:0,mlx5_1:2:1", "0:1 1:2"), ("=mlx5", ""), ("ib", ""),
    ):  # fmt: skip
        found = infiniband_rates(only, tmp_path)
        assert [name.removeprefix("mlx5_") for name in found] == left.split(), only
    assert infiniband_rates(root=tmp_path / "absent") == {}
