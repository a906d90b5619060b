"""Options are checked by one table, in the decorator and at deploy."""

from __future__ import annotations

import pytest

import dgsf
from dgsf.config import GIB, MIB
from dgsf.core.names import check_name
from dgsf.core.options import FunctionOptions, options_table, parse_options
from dgsf.errors import InvalidName, InvalidOption, UnknownOption


def test_without_options_the_defaults_hold():
    assert parse_options({}) == FunctionOptions()
    assert FunctionOptions().memory == 512 * MIB
    assert FunctionOptions().given() == {}


def test_values_are_normalised_and_survive_a_journey_as_json():
    given = {"gpu": ["A100", "T4"], "memory": "2GiB", "timeout": 5, "retries": 2, "network": True, "idle_seconds": 1}
    options = parse_options(given)
    assert options.gpu == ("A100", "T4")
    assert options.memory_bytes == 2 * GIB
    assert options.timeout_us == 5_000_000
    assert parse_options(options.given()) == options
    assert parse_options({"gpu": "A100"}).given() == {"gpu": "A100"}


def test_the_largest_memory_may_be_written_in_its_own_unit():
    assert parse_options({"memory": "1TiB"}).memory_bytes == 1024**4


def test_a_function_over_the_fabric_asks_for_a_host_and_for_memory_on_its_device():
    near, fabric = parse_options({"gpu": "A100"}), parse_options({"gpu": "A100", "attach": "fabric", "memory": "1GiB"})
    assert near.worker_types == ("A100",) and not near.over_fabric
    assert fabric.worker_types == ("host",) and fabric.over_fabric
    assert fabric.gpu_memory_bytes == GIB
    more = parse_options({"attach": "fabric", "gpu_memory": "2GiB", "device_alias": "cuda"})
    assert more.gpu_memory_bytes == 2 * GIB
    assert parse_options(more.given()) == more


def test_processors_are_counted_in_thousandths_and_by_default_not_at_all():
    asked = [parse_options({"cpu": cpu}).cpu_milli for cpu in (2, 0.5, 1.1, 0.0001)]
    assert asked == [2000, 500, 1100, 1]
    assert parse_options({}).cpu_milli == 0 and parse_options({"cpu": 2}).given() == {"cpu": 2.0}


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        ({"memory": "12 potatoes"}, "a size from 1MiB"),
        ({"memory": 1000}, "a size from 1MiB"),
        ({"memory": True}, "a size from 1MiB"),
        ({"memory": "inf"}, "a size from 1MiB"),
        ({"cpu": -1}, "a number of processors from 0 to 1024"),
        ({"cpu": "2"}, "a number of processors from 0 to 1024"),
        ({"timeout": 0}, "0.01 to 86400"),
        ({"timeout": float("nan")}, "0.01 to 86400"),
        ({"timeout": "30"}, "0.01 to 86400"),
        ({"retries": 11}, "0 to 10"),
        ({"retries": 1.5}, "0 to 10"),
        ({"network": 1}, "True or False"),
        ({"gpu": []}, "a list of up to 16"),
        ({"gpu": "no such thing!"}, "a device type"),
        ({"gpu": ["A100", "A100"]}, "twice"),
        ({"gpu": "host"}, "a device type"),
        ({"attach": "far"}, "expected 'near', 'fabric' or 'auto'"),
        ({"gpu_memory": 5}, "a size from 1MiB"),
        ({"device_alias": "hip"}, "'' or 'cuda'"),
        ({"max_workers": -1}, "0 to 1000"),
        ({"idle_seconds": 0}, "0.05 to 86400"),
    ],
)
def test_a_bad_value_is_refused_with_its_range(given, hint):
    with pytest.raises(InvalidOption) as caught:
        parse_options(given)
    assert hint in caught.value.message
    assert next(iter(given)) in caught.value.message
    assert caught.value.status == 422


def test_an_unknown_option_suggests_the_nearest():
    with pytest.raises(UnknownOption, match="did you mean 'timeout'"):
        parse_options({"timeot": 3})
    with pytest.raises(UnknownOption, match="known options: gpu, memory"):
        parse_options({"zzzzz": 3})


@pytest.mark.parametrize("name", ["packages", "env", "secrets", "volumes"])
def test_reserved_options_say_so(name):
    with pytest.raises(UnknownOption, match="reserved for a later version"):
        parse_options({name: []})


def test_the_decorator_refuses_on_its_own_line():
    app = dgsf.App("a")
    with pytest.raises(dgsf.UnknownOption, match="did you mean 'memory'"):
        app.function(memry="1GiB")
    with pytest.raises(dgsf.InvalidOption):
        dgsf.App("b", timeout=-1)


def test_every_option_is_in_the_manual():
    assert [row[0] for row in options_table()] == [
        name for name in FunctionOptions.__dataclass_fields__ if name != "chosen"
    ]  # the platform's own


@pytest.mark.parametrize("name", ["", "a b", "-x", "ä", "x" * 129, None, "a/b", "a\n"])
def test_bad_names_are_refused(name):
    with pytest.raises(InvalidName, match="cannot be the name"):
        check_name(name)


@pytest.mark.parametrize("said", [{"gpu_memory": "1GiB"}, {"device_alias": "cuda"}])
def test_options_of_a_remote_device_need_one(said):
    near, fabric = dgsf.App("near"), dgsf.App("fabric", attach="fabric", device_alias="cuda")
    with pytest.raises(InvalidOption, match="add attach='fabric'"):
        near.function(**said)
    with pytest.raises(InvalidOption, match="add attach='fabric'"):
        near.function(len_of).with_options(**said)
    assert near.function(attach="auto", **said)(len_of).options.attach == "auto"
    assert fabric.function(**said)(len_of).with_options(attach="near").options.attach == "near"


def len_of(text):
    return len(text)
