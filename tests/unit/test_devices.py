"""The device setting: what it says, and what it says wrongly."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dgsf.config import GIB, MIB
from dgsf.core.devices import AUTO, DeviceSpec, parse_devices, parse_hosts
from dgsf.errors import ConfigError, StartError
from dgsf.fabric.devices import cpu, cuda, offers, open_device, resolve_devices, sim
from dgsf.fabric.devices.base import machine_memory
from dgsf.fabric.spec import WorkerSpec
from dgsf.heap import HUGE_PAGES


def spec_of_worker(**changes):
    fields = {
        "worker_id": 1, "slot": 0, "epoch": 1, "tenant_id": 1, "version_id": 1, "memory_bytes": MIB, "network": False,
        "shared_dir": "/x", "device_kind": "sim", "device_index": 0, "device_options": {}, "max_file_bytes": MIB,
    }  # fmt: skip
    return WorkerSpec(**(fields | changes))


# --- text
def test_auto_is_left_to_the_machine():
    assert parse_devices(" Auto ") == AUTO


def test_a_number_of_devices_is_numbered_through():
    devices = parse_devices("cpu:2")
    assert [(d.kind, d.type, d.index, d.slots, d.short_name) for d in devices] == [
        ("cpu", "cpu", 0, 4, "cpu0"),
        ("cpu", "cpu", 1, 4, "cpu1"),
    ]


def test_kinds_can_be_mixed_and_numbers_go_on():
    devices = parse_devices("cpu, sim:A100:2 ,sim:T4,sim:A100")
    assert [d.short_name for d in devices] == ["cpu0", "sim-A100-0", "sim-A100-1", "sim-T4-0", "sim-A100-2"]
    assert devices[1].memory_bytes == 40 * GIB and devices[3].memory_bytes == 16 * GIB


def test_attributes_are_read():
    (device,) = parse_devices("sim:A100:1:memory=20GiB:speed=9.7:slots=8:price=3:launch_us=5:kernel_us=20")
    assert device == DeviceSpec("sim", "A100", 0, 20 * GIB, 8, 9.7, 3, {"launch_us": 5.0, "kernel_us": 20.0})


def test_the_price_is_the_platforms_unless_given():
    assert [d.price_nano_per_us for d in parse_devices("cpu,cpu:1:price=9", None, 5)] == [5, 9]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "kind must be one of"),
        ("gpu:1", "'gpu:1'"),
        ("cpu:x", "'x' is not a number"),
        ("cpu:0", "from 1 to"),
        ("cpu:2000", "from 1 to"),
        ("cpu:1:2", "'2' is not name=value"),
        ("sim", "needs a type"),
        ("sim:A 100", "cannot be a device type"),
        ("sim:host", "cannot be a device type"),
        ("host:1", "kind must be one of"),
        ("cpu:1:slots=0", "slots=0"),
        ("cpu:1:slots=2:slots=3", "twice"),
        ("cpu:1:colour=red", "unknown attribute 'colour'"),
        ("cpu:1:launch_us=3", "unknown attribute 'launch_us'"),
        ("cpu:slots=2:1", "come last"),
        ("sim:A100:1:memory=lots", "memory=lots"),
        ("sim:A100:1:speed=-1", "speed=-1"),
        ("sim:A100:1:speed=nan", "speed=nan"),
        ("cpu:900,cpu:900", "over the limit"),
        ("devices.toml", "cannot be read here"),
    ],
)
def test_a_mistake_is_named_with_an_example(text, told):
    with pytest.raises(ConfigError, match=r"--devices \(DGSF_DEVICES\): ") as raised:
        parse_devices(text)
    assert told in raised.value.message
    assert "sim:A100:4" in raised.value.message or "limit" in raised.value.message


@given(st.text(alphabet="cpusim:=,A1024.xyz_ \n", max_size=40))
def test_any_text_is_devices_or_a_clear_error(text):
    try:
        found = parse_devices(text)
    except ConfigError:
        return
    assert found == AUTO or all(isinstance(device, DeviceSpec) for device in found)


# --- file
TOML = """
[slow]
kind = "cpu"
count = 2
slots = 2

[fast]
kind = "sim"
type = "H100"
memory = "10GiB"
launch_us = 4
kernels = { "aten::mm" = 12.5, "aten::add" = 2 }
"""


def test_a_file_has_a_table_per_group():
    slow, _, fast = parse_devices("my.toml", lambda path: TOML if path == "my.toml" else "")
    assert (slow.kind, slow.slots) == ("cpu", 2)
    assert (fast.short_name, fast.memory_bytes) == ("sim-H100-0", 10 * GIB)
    assert fast.options == {"launch_us": 4.0, "kernels": {"aten::mm": 12.5, "aten::add": 2.0}}


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("", "has no table"),
        ("[a", "is not TOML"),
        ("x = 1", "must be a table"),
        ("[a]\nkind = 'tpu'", "[a]"),
        ("[a]\nkind = 'sim'", "needs a type"),
        ("[a]\nkind = 'cpu'\ncount = '2'", "whole number"),
        ("[a]\nkind = 'sim'\ntype = 'T4'\nkernels = 5", "kernels=5"),
    ],
)
def test_a_mistake_in_a_file_is_named(content, told):
    with pytest.raises(ConfigError) as raised:
        parse_devices("my.toml", lambda _path: content)
    assert told in raised.value.message and "my.toml" in raised.value.message


def test_a_missing_file_is_a_clear_error(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read"):
        resolve_devices(str(tmp_path / "none.toml"))


# --- the machine
def test_cpu_devices_share_half_of_the_memory():
    one, two = resolve_devices("cpu:2")
    assert one.memory_bytes == two.memory_bytes == machine_memory() // 4 // MIB * MIB
    assert one.options["threads"] >= 1
    assert resolve_devices("cpu:1:memory=3GiB:threads=7")[0].options == {"threads": 7}
    assert resolve_devices("cpu:1:threads=7:kernels=torch")[0].options == {"threads": 7, "kernels": "torch"}
    with pytest.raises(ConfigError, match=r"kernels=fast: expected kernels=quickest or kernels=torch"):
        resolve_devices("cpu:1:kernels=fast")


def test_simulated_devices_share_the_cores_with_each_other_and_the_cpu_devices(monkeypatch):
    monkeypatch.setattr(sim, "machine_cpus", lambda: 16)
    one, *others = resolve_devices("sim:A100:2,sim:T4:1:threads=3,cpu:1")
    assert one.options == {"threads": 4} and others[1].options == {"threads": 3}
    many = resolve_devices("sim:A100:40")
    assert many[0].options == {"threads": 1}


def test_a_device_can_be_opened_by_its_spec():
    assert open_device(resolve_devices("sim:A100:1")[0]).check_health() == ""
    assert isinstance(open_device(resolve_devices("cpu:1")[0]), cpu.CpuDevice)
    with pytest.raises(StartError, match="no such device"):
        open_device(DeviceSpec("tpu", "tpu", 0, 1))


def test_a_simulated_device_tells_its_timing_to_the_worker():
    sim.setup_worker(spec_of_worker(device_options={"launch_us": 5, "kernel_us": 20, "kernels": {"mm": 100}}))
    timing = sim.timing()
    assert timing.of("mm") == 105.0 and timing.of("add") == 25.0


# --- function hosts
@pytest.mark.parametrize("text", ["cpu:1", "sim:A100:1"])
def test_kernels_that_run_in_main_memory_have_it_in_huge_pages(text):
    environment = open_device(resolve_devices(text)[0]).worker_environment()
    assert environment == {"CUDA_VISIBLE_DEVICES": "", **HUGE_PAGES}


def test_bodies_on_a_function_host_have_small_pages_which_come_faster():
    _, host = offers("cpu:1", "auto")
    assert open_device(host).worker_environment() == {"CUDA_VISIBLE_DEVICES": ""}


def test_a_node_has_a_function_host_unless_it_wants_none():
    device, host = offers("cpu:1", "auto")
    assert device.node_cpus == host.node_cpus == len(os.sched_getaffinity(0)), "of one node"
    assert (device.kind, host.kind, host.short_name, host.slots) == ("cpu", "host", "host0", 8)
    assert host.memory_bytes == machine_memory() // 4 // MIB * MIB and host.price_nano_per_us == 0
    assert parse_hosts("3").slots == 3
    assert [spec.kind for spec in offers("cpu:1", "0")] == ["cpu"]
    assert open_device(host).check_health() == ""


@pytest.mark.parametrize("text", ["many", "-1", "", "2000", "1.5"])
def test_a_wrong_number_of_hosts_is_told(text):
    with pytest.raises(ConfigError, match=r"DGSF_HOSTS=.*: expected 'auto' or a number of slots"):
        parse_hosts(text)


# --- CUDA, with a driver that is made up at the narrowest edge
class FakeDriver:
    def __init__(self, trouble=""):
        self._trouble = trouble

    def gpus(self):
        return [cuda.Gpu("NVIDIA A100-SXM4-40GB", 40 * GIB), cuda.Gpu("Tesla T4", 16 * GIB)]

    def memory_used(self, index):
        return index * GIB

    def trouble(self, index):
        return self._trouble


def test_gpus_become_devices_by_their_types():
    found = cuda.detect(FakeDriver())
    assert [(d.kind, d.type, d.index, d.memory_bytes) for d in found] == [
        ("cuda", "A100", 0, 40 * GIB),
        ("cuda", "T4", 1, 16 * GIB),
    ]
    assert cuda.detect(None) == []


@pytest.mark.parametrize(
    ("product", "expected"),
    [
        ("NVIDIA A100-SXM4-40GB", "A100"),
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("Tesla V100-SXM2-16GB", "V100"),
        ("NVIDIA GeForce RTX 4090", "RTX-4090"),
        ("Quadro P5000", "Quadro-P5000"),
        ("", "gpu"),
    ],
)
def test_product_names_become_the_types_that_people_ask_for(product, expected):
    assert cuda.type_name(product) == expected


def test_a_gpu_shows_only_itself_to_its_workers():
    device = cuda.CudaDevice(cuda.detect(FakeDriver())[1], FakeDriver("fell off the bus"))
    assert device.worker_environment()["CUDA_VISIBLE_DEVICES"] == "1"
    assert "/dev/nvidia1" in device.device_nodes() and "/dev/nvidia0" not in device.device_nodes()
    assert device.memory_used(0) == GIB
    assert device.check_health() == "fell off the bus"


def test_more_gpus_than_there_are_is_a_clear_error(monkeypatch):
    monkeypatch.setattr(cuda, "find_driver", FakeDriver)
    assert [d.type for d in resolve_devices("cuda:2")] == ["A100", "T4"]
    assert [d.type for d in resolve_devices("auto")] == ["A100", "T4"]
    with pytest.raises(ConfigError, match="3 CUDA GPUs are asked for, 2 found"):
        resolve_devices("cuda:3")
