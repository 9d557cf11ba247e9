"""The table of Xids: whose fault a code is, and one form for PCI addresses."""

from oddrank.machine.xid import HARDWARE, XIDS, pci_slot

SLOTS = {
    "0000:9b:00": "0000:9b:00", "0000:9B:00.0": "0000:9b:00", "00000000:9B:00.0": "0000:9b:00",
    "9b:00.0": "0000:9b:00", "00000009:01:00.0": "0009:01:00", "00010000:e1:00.0": "10000:e1:00",
    "9b000": "0000:9b:00", "1b0000": "0001:b0:00", "901000": "0009:01:00", "mlx5_0": "mlx5_0",
    "": "",
}  # fmt: skip


def test_addresses_of_all_sources_have_one_form():
    assert {address: pci_slot(address) for address in SLOTS} == SLOTS


def test_what_is_broken_is_the_gpus_fault():
    assert {XIDS[code].whose for code in HARDWARE} == {"hardware"}
    assert {79, 119, 48, 95, 110, 154} <= set(HARDWARE)


def test_errors_of_programs_and_cleanup_are_no_broken_gpus():
    assert not set(HARDWARE) & {13, 31, 43, 45, 63, 94}
    assert {XIDS[code].whose for code in (13, 31, 43)} == {"application"}
    assert (XIDS[45].whose, XIDS[45].fatal) == ("cleanup", False)
