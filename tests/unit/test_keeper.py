"""What becomes of a part that does not start: how often it is tried, and what its user hears."""

import asyncio

import pytest

from dgsf.cli.controller import _known
from dgsf.errors import ConfigError, StartError
from dgsf.fabric.cluster import ClusterLost
from dgsf.fabric.ray_node import RayNode, check_token, is_refusal
from dgsf.supervisor.keeper import LONGEST_DELAY, TRIES_AT_START, Keeper, Part, delay_after
from dgsf.supervisor.ports import check_ray_place, free_port
from dgsf.supervisor.ray import there


class Ended:
    """A part that is over as soon as it is started."""

    pid = 1

    def __init__(self, status):
        self._status = status

    async def wait(self):
        return self._status


def keeper_of(log, status, monkeypatch, word="error: nothing answers at Ray's address\n"):
    """Its keeper, what it says and how often the part was started."""
    monkeypatch.setattr("dgsf.supervisor.keeper.FIRST_DELAY", 0.0)
    monkeypatch.setattr("dgsf.supervisor.keeper.STEADY_SECONDS", 0.0)  # however long each life was
    said, starts = [], []

    async def start():
        starts.append(status)
        log.write_text("earlier\n" + word)
        return Ended(status)

    return Keeper(Part("controller", start, log), said.append), said, starts


async def test_a_part_that_never_gets_ready_is_given_up_however_long_each_try_takes(tmp_path, monkeypatch):
    keeper, said, starts = keeper_of(tmp_path / "log", 1, monkeypatch)
    with pytest.raises(StartError, match="the controller does not start: nothing answers at Ray's address; log"):
        await keeper.run()
    assert len(starts) == TRIES_AT_START
    assert said[0] == "controller ended (exit status 1: nothing answers at Ray's address); starting it again"


async def test_settings_that_cannot_work_are_not_tried_again(tmp_path, monkeypatch):
    keeper, said, starts = keeper_of(tmp_path / "log", 2, monkeypatch)
    with pytest.raises(StartError):
        await keeper.run()
    assert (len(starts), said, keeper.hopeless) == (1, [], True)


async def test_an_end_without_a_word_of_ours_is_tried_again_and_its_last_words_are_told(tmp_path, monkeypatch):
    keeper, said, starts = keeper_of(tmp_path / "log", 2, monkeypatch, "Segmentation fault\n")
    with pytest.raises(StartError, match=r"(?s)exit status 2.*its last words:.*Segmentation fault"):
        await keeper.run()
    assert len(starts) == TRIES_AT_START and not keeper.hopeless
    assert said[0] == "controller ended (exit status 2); starting it again"


def test_a_part_that_was_killed_is_started_at_once_and_one_in_a_crash_loop_ever_later():
    delays = [delay_after(failures) for failures in range(1, 12)]
    assert delays[0] == 0 and delays == sorted(delays)
    assert 0 < delays[1] < delays[-1] == LONGEST_DELAY


def test_the_error_of_a_controller_is_found_in_its_group():
    lost = ClusterLost("nothing answers")
    assert _known(BaseExceptionGroup("", [BaseExceptionGroup("", [lost])])) is lost
    assert _known(BaseExceptionGroup("", [lost, ValueError("a bug")])) is None


async def test_a_cluster_where_nobody_listens_is_told_with_the_way_out():
    with pytest.raises(StartError, match="without --ray-address"):
        await there(f"127.0.0.1:{free_port()}", 0.1)
    await there("auto", 0.1)
    server = await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", 0)
    async with server:
        await there(f"127.0.0.1:{server.sockets[0].getsockname()[1]}", 60.0)


def test_a_missing_token_is_one_line_with_the_file_where_it_is(tmp_path):
    with pytest.raises(ConfigError, match=r"RAY_AUTH_TOKEN is not set.*head:6379.*ray\.token") as raised:
        check_token("head:6379", {}, tmp_path)
    assert "\n" not in raised.value.message
    check_token("head:6379", {"RAY_AUTH_TOKEN": "t"}, tmp_path)
    file = tmp_path / ".ray" / "auth_token"
    file.parent.mkdir()
    file.write_text("t")
    check_token("head:6379", {}, tmp_path)
    check_token("head:6379", {"RAY_AUTH_TOKEN_PATH": str(file)}, tmp_path / "elsewhere")


def test_the_head_listens_where_it_is_told_and_not_everywhere(tmp_path):
    node = RayNode("first", tmp_path, 6379, host="10.0.0.5")
    assert node.address == "10.0.0.5:6379"
    assert {"--node-ip-address=10.0.0.5", "--port=6379"} <= set(node.command())
    with pytest.raises(StartError, match="by which the other machines reach this one"):
        check_ray_place("0.0.0.0", 6379)
    with pytest.raises(StartError, match="--ray-host"):
        check_ray_place("192.0.2.77", 0)  # not of this machine
    check_ray_place("127.0.0.1", 0)


def test_a_refused_token_is_found_in_what_led_to_the_error():
    class AuthenticationError(Exception):
        pass

    error = ConnectionError("Failed to connect")
    assert not is_refusal(error)
    error.__cause__ = AuthenticationError("InvalidAuthToken")
    assert is_refusal(error)
