"""How torch's Python functions are replaced while a remote device is attached, and found again by who knows them."""

from __future__ import annotations

from contextlib import ExitStack
from importlib import import_module
from typing import Any

import torch

_NOTHING = object()


def replace(stack: ExitStack, owner: Any, name: str, new: Any) -> None:
    """Set an attribute until the stack ends."""
    before = owner.__dict__.get(name, _NOTHING)
    setattr(owner, name, new)
    if before is _NOTHING:
        stack.callback(delattr, owner, name)
    else:
        stack.callback(setattr, owner, name, before)


def replace_item(stack: ExitStack, table: dict[str, Any], name: str, new: Any) -> None:
    """Set what a table has under this name until the stack ends."""
    stack.callback(table.__setitem__, name, table[name])
    table[name] = new


def standing_for(new: Any, original: Any) -> Any:
    """A function with the name of the one that it replaces, and a note of which that is."""
    new.__name__ = getattr(original, "__name__", new.__name__)
    new.__module__ = getattr(original, "__module__", None) or new.__module__
    new.__qualname__ = new.__name__  # where pickle looks for it
    new.__doc__ = original.__doc__
    new._dgsf_original = getattr(original, "_dgsf_original", original)
    return new


def hearing(original: Any) -> Any:
    """A method of torch.Tensor that will be replaced: whoever has a say in torch's functions hears of the original."""

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        if torch.overrides.has_torch_function_unary(self):
            return torch.overrides.handle_torch_function(original, (self,), self, *args, **kwargs)
        return original(self, *args, **kwargs)

    return standing_for(method, original)


def let_scripts_find_them(stack: ExitStack) -> None:
    """TorchScript knows torch's functions by identity; forward-mode derivatives are scripted when first used."""
    builtins = import_module("torch.jit._builtins")
    find = builtins._find_builtin
    replace(stack, builtins, "_find_builtin", lambda function: find(getattr(function, "_dgsf_original", function)))
