"""`torch.dgsf` answers what `torch.cuda` does under the alias, for the one device that there is."""

import pytest
import torch


def test_there_is_one_device(device):
    torch.dgsf.set_device(0), torch.dgsf.set_device("dgsf:0")
    with torch.dgsf.device(0), torch.dgsf.device(torch.device("dgsf")):
        assert torch.dgsf.current_device() == 0
    for wrong in (torch.dgsf.set_device, torch.dgsf.device, torch.dgsf.get_device_name, torch.dgsf.memory_allocated):
        with pytest.raises(RuntimeError, match="only one remote device, dgsf:0"):
            wrong(3)
    with pytest.raises(ValueError, match="expected a dgsf device"):
        torch.dgsf.set_device("cuda:0")


def test_memory_properties_streams_and_events_are_under_its_own_name(device):
    x = torch.ones(1000, device=device) + 1
    assert torch.dgsf.memory_reserved() == torch.dgsf.memory_allocated() >= x.nbytes
    assert torch.dgsf.memory_stats()["allocated_bytes.all.current"] >= x.nbytes
    found = torch.dgsf.get_device_properties(0)
    assert found.total_memory == torch.dgsf.mem_get_info()[1] and found.name == torch.dgsf.get_device_name()
    begin, end = (torch.dgsf.Event(enable_timing=True) for _ in range(2))
    with torch.dgsf.stream(torch.dgsf.Stream()):
        begin.record()
        end.record()
    assert begin.elapsed_time(end) >= 0 and torch.dgsf.current_stream().device == begin.device == x.device
