"""Faults in the measurements that a rank reports."""

import pytest

from oddrank.control.inject import Injector, parse


def said(faults, measured, stage="speed"):
    injector = Injector(parse(faults))
    injector.enter(stage)
    return injector.said(measured)


def test_a_number_or_each_one_of_a_list_is_scaled():
    scaled = said("scale:rank=0,stage=speed,name=copy,by=0.5", {"copy": [4.0, 2.0], "read": 1.0})
    assert scaled == {"copy": [2.0, 1.0], "read": 1.0}
    assert said("scale:rank=0,stage=speed,name=copy.us,by=2", {"copy": {"us": 3}}) == {
        "copy": {"us": 6.0}
    }


@pytest.mark.parametrize(("value", "put"), [("2.13", 2.13), ("node7", "node7"), ("null", None)])
def test_a_value_is_set_as_json_or_as_text(value, put):
    fault = f"set:rank=0,stage=speed,name=fact,value={value}"
    assert said(fault, {"fact": "mine"}) == {"fact": put}


def test_other_stages_say_what_they_measured():
    fault = "scale:rank=0,stage=speed,name=copy,by=0.5"
    assert said(fault, {"copy": 4.0}, "environment") == {"copy": 4.0}
