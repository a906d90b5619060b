"""What the benchmark reads: wrk's figures, its script, py-spy's stacks."""

from __future__ import annotations

import pytest

from dgsf.errors import UsageError
from loadtests.profile import layer_of, read_profile
from loadtests.service import ROOT
from loadtests.wrk import Target, parse, script_of

OUTPUT = """Running 3s test @ http://127.0.0.1:1/echo
  1 threads and 64 connections
RESULT {"requests":3000,"duration_us":1500000,"bad_status":1,"socket_errors":2,\
"p50_us":1,"p90_us":2,"p99_us":3,"max_us":4}
"""


def test_figures_of_wrk_are_read_from_the_script_s_line():
    found = parse(OUTPUT, "x")
    assert found.per_second == 2000
    assert found.failures == 3


def test_wrk_without_figures_is_an_error_that_shows_its_words():
    with pytest.raises(UsageError, match="unable to connect"):
        parse("unable to connect to 127.0.0.1", "x")


def test_script_carries_headers_and_body_whatever_is_in_them():
    script = script_of(Target("x", "http://x", {"Authorization": "Bearer k"}, b'{"x": 1}\n\\', 3))
    assert 'wrk.headers["Authorization"] = "Bearer k"' in script
    assert r'wrk.body = string.rep("{\034x\034: 1}\010\092", 3)' in script


def test_key_of_a_target_is_not_printed():
    assert "secret" not in repr(Target("x", "http://x", {"Authorization": "Bearer secret"}))


def test_stacks_are_counted_by_function_and_by_layer():
    gateway = f"invoke ({ROOT}/gateway/invoke.py:10)"
    profile = read_profile(
        [
            f"run (/lib/asyncio/runners.py:1);{gateway};write (/site-packages/aiohttp/web.py:5) 3",
            f"run (/lib/asyncio/runners.py:1);invoke ({ROOT}/gateway/invoke.py:99) 1",
            "",
        ]
    )
    assert profile.samples == 4
    assert profile.total[f"invoke ({ROOT}/gateway/invoke.py)"] == 4
    assert profile.own[f"invoke ({ROOT}/gateway/invoke.py)"] == 1
    assert profile.layer_own == {"aiohttp": 3, "gateway": 1}
    assert profile.layer_total == {"asyncio": 4, "gateway": 4, "aiohttp": 3}


def test_a_frame_without_a_known_place_is_other():
    assert layer_of("<lambda> (<string>:1)") == "other"
