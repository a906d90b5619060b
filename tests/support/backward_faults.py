"""Faults in backward passes, each on the CPU and on the remote device; a program of its own, which they may end.

It prints one line for each fault: its name and what came of it here and there, as JSON.  Its argument is the alias.
"""

from __future__ import annotations

import json
import sys
import threading
import traceback
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch
from inprocess_stream import InProcessStream
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

from dgsf.remoting.guest.attach import bind

Pass = Callable[[], Any]


class Own(Exception):
    """The program's own error."""


def interrupt(*_: Any) -> Any:
    raise KeyboardInterrupt


def fail(*_: Any) -> Any:
    try:
        raise KeyError("first")
    except KeyError:
        raise Own("own") from None


def ones(device: torch.device) -> torch.Tensor:
    return torch.ones(3, device=device, requires_grad=True)


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return fail()


class Mismatched(Doubled):
    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return gradient @ torch.ones(9, 9, device=gradient.device)


def hooked(device: torch.device, hook: Any = fail) -> Pass:
    y = ones(device) * 2
    y.register_hook(hook)
    return y.sum().backward


def hook_of_a_leaf(device: torch.device) -> Pass:
    x = ones(device)
    x.register_hook(fail)
    return (x * 2).sum().backward


def hook_after_a_gradient(device: torch.device) -> Pass:
    x = ones(device)
    x.register_post_accumulate_grad_hook(fail)
    return (x * 2).sum().backward


def hook_of_a_node(device: torch.device) -> Pass:
    y = ones(device) * 2
    y.grad_fn.register_hook(fail)
    return y.sum().backward


def hook_before_a_node(device: torch.device) -> Pass:
    y = ones(device) * 2
    y.grad_fn.register_prehook(fail)
    return y.sum().backward


def hook_of_a_module(device: torch.device) -> Pass:
    module = torch.nn.Linear(3, 3).to(device)
    module.register_full_backward_hook(fail)
    return module(ones(device)).sum().backward


def hook_before_a_module(device: torch.device) -> Pass:
    module = torch.nn.Linear(3, 3).to(device)
    module.register_full_backward_pre_hook(fail)
    return module(ones(device)).sum().backward


def unpacking(device: torch.device) -> Pass:
    with saved_tensors_hooks(lambda tensor: tensor, fail):
        y = ones(device).exp()
    return y.sum().backward


def recomputation(device: torch.device, reentrant: bool = False) -> Pass:
    calls = []

    def layer(x: torch.Tensor) -> torch.Tensor:
        calls.append(x)
        return x.exp() if len(calls) == 1 else fail()

    return checkpoint(layer, ones(device), use_reentrant=reentrant).sum().backward


def hook_inside_a_checkpoint(device: torch.device) -> Pass:
    def layer(x: torch.Tensor) -> torch.Tensor:
        y = x.exp()
        if y.requires_grad:  # not in the first forward
            y.register_hook(fail)
        return y * 2

    return checkpoint(layer, ones(device), use_reentrant=True).sum().backward


def callback(device: torch.device) -> Pass:
    return hooked(device, lambda _: torch.autograd.Variable._execution_engine.queue_callback(fail))


def gradients_of_gradients(device: torch.device) -> Pass:
    x = ones(device)
    (gradient,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
    gradient.register_hook(fail)
    return (gradient**2).sum().backward


def while_they_are_recorded(device: torch.device) -> Pass:
    x = ones(device)
    y = x * 2
    y.register_hook(fail)
    return lambda: torch.autograd.grad(y.sum(), x, create_graph=True)


def engine_itself(device: torch.device) -> Pass:
    y = ones(device) * 2
    y.register_hook(fail)
    run = torch.autograd.Variable._execution_engine.run_backward
    return lambda: run((y,), (torch.ones_like(y),), False, False, (), allow_unreachable=True, accumulate_grad=True)


def pass_within_a_pass(device: torch.device) -> Pass:
    def hook(_: Any) -> None:
        with torch.enable_grad():
            hooked(device)()

    return hooked(device, hook)


def fault_that_a_hook_handles(device: torch.device) -> Pass:
    def hook(_: Any) -> None:
        with torch.enable_grad():
            inner = hooked(device)
        with suppress(Own):
            inner()

    return hooked(device, hook)


def under_a_handler(device: torch.device) -> Pass:
    run = hooked(device)

    def handling() -> None:
        try:
            raise ValueError("before")
        except ValueError:
            run()

    return handling


def from_the_cpu(device: torch.device) -> Pass:
    y = ones(device) * 2
    y.register_hook(fail)
    return y.cpu().sum().backward


def in_threads(device: torch.device) -> Pass:
    found: list[BaseException] = []

    def run() -> None:
        try:
            for _ in range(20):
                hooked(device)()
        except Own as error:
            found.append(error)

    def all_threads() -> None:
        threads = [threading.Thread(target=run) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(found) == 4
        raise found[0]

    return all_threads


def under_a_debugger(device: torch.device) -> Pass:
    run = hooked(device)

    def trace(*_: Any) -> Any:
        return trace

    def debugging() -> None:
        before = sys.gettrace()
        sys.settrace(trace)
        try:
            run()
        finally:
            sys.settrace(before)

    return debugging


def with_anomalies_detected(device: torch.device) -> Pass:
    with torch.autograd.detect_anomaly(check_nan=False):
        run = hooked(device)

    def detecting() -> None:
        with torch.autograd.detect_anomaly(check_nan=False):
            run()

    return detecting


FAULTS: dict[str, Callable[[torch.device], Pass]] = {
    "tensor": hooked,
    "leaf": hook_of_a_leaf,
    "after accumulation": hook_after_a_gradient,
    "node": hook_of_a_node,
    "before a node": hook_before_a_node,
    "module": hook_of_a_module,
    "before a module": hook_before_a_module,
    "function": lambda device: Doubled.apply(ones(device)).sum().backward,
    "refused operation": lambda device: Mismatched.apply(ones(device)).sum().backward,
    "refused operation in a hook": lambda device: hooked(device, lambda gradient: gradient[:2] @ gradient),
    "unpacking": unpacking,
    "recomputation": recomputation,
    "reentrant recomputation": lambda device: recomputation(device, True),
    "inside a checkpoint": hook_inside_a_checkpoint,
    "callback": callback,
    "gradients of gradients": gradients_of_gradients,
    "while they are recorded": while_they_are_recorded,
    "engine itself": engine_itself,
    "pass within a pass": pass_within_a_pass,
    "handled by a hook": fault_that_a_hook_handles,
    "under a handler": under_a_handler,
    "from the cpu": from_the_cpu,
    "threads": in_threads,
    "debugger": under_a_debugger,
    "anomalies": with_anomalies_detected,
    "interrupt": lambda device: hooked(device, interrupt),
    "exit": lambda device: hooked(device, lambda _: sys.exit(3)),
    "wrong shape": lambda device: hooked(device, lambda _: torch.ones(7, device=device)),
    "no tensor": lambda device: hooked(device, lambda _: "text"),
}


def told(error: BaseException | None) -> list[Any]:
    """What the program sees of an error: its type, its text, its own frames in it, and what went before."""
    if error is None:
        return []
    kind = next(each for each in type(error).__mro__ if not each.__module__.startswith("dgsf"))
    frames = [frame.name for frame in traceback.extract_tb(error.__traceback__) if frame.filename == __file__]
    return [kind.__name__, str(error), frames, error.__suppress_context__, told(error.__context__)]


def outcome(fault: Callable[[torch.device], Pass], device: torch.device) -> list[Any]:
    """Of one fault, after which a pass must work."""
    found: BaseException | None = None
    run = fault(device)
    try:
        run()
    except BaseException as error:
        found = error
    x = ones(device)
    (x * 3).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [3, 3, 3]
    return told(found)


def main(alias: str) -> None:
    warnings.simplefilter("ignore")
    cpu = torch.device("cpu")
    before = {name: outcome(fault, cpu) for name, fault in FAULTS.items()}
    with bind(InProcessStream(), alias) as device:
        for name, fault in FAULTS.items():
            print(json.dumps([name, before[name], outcome(fault, cpu), outcome(fault, device)]), flush=True)
        elsewhere = outcome(lambda device: hooked(device, lambda _: torch.ones(3)), device)
        print(json.dumps(["gradient on the cpu", *elsewhere]), flush=True)
        run = hooked(device)
    try:
        run()
    except Exception as error:
        print(json.dumps(["after the session", type(error).__name__]), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
