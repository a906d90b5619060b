"""Tensors of a program's own class on the device: torchvision's boxes and images, parameters with methods.

Such a tensor there is of a class made of both, the program's and ours: `isinstance` says yes to the program's class,
whose methods and `__torch_function__` it has, and its values are on the device.  A class that does operations
itself (`__torch_dispatch__`) or has no room for a handle is refused; no class is lost without a word.
"""

from __future__ import annotations

import copyreg
import inspect
import types
from contextlib import ExitStack
from typing import Any

import torch

from dgsf.errors import OpNotAllowed
from dgsf.remoting.guest.archives import local_copy
from dgsf.remoting.guest.replacing import replace
from dgsf.remoting.guest.tensor import RemoteTensor, own_attributes, refit

_as_subclass = torch.Tensor.as_subclass
_SILENT = torch._C._disabled_torch_function_impl
_PLAIN = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)  # to these classes every remote tensor belongs


class Joined(RemoteTensor):
    """What all classes made of two have in common."""

    _own: type  # the program's class

    def __reduce_ex__(self, protocol: Any) -> Any:
        local = _of_class(local_copy(_plain(self)), self._own, self.requires_grad)
        local.__dict__.update(own_attributes(self))
        return local.__reduce_ex__(protocol)

    def __copy__(self) -> Any:
        return _again(RemoteTensor.__copy__(self), type(self))

    def __deepcopy__(self, memo: dict[Any, Any]) -> Any:
        if id(self) not in memo and issubclass(self._own, torch.nn.Parameter):  # made anew, as torch does it
            memo[id(self)] = self._own(_plain(self).detach().clone(), self.requires_grad)
        elif id(self) not in memo:
            memo[id(self)] = _again(RemoteTensor.__deepcopy__(self, memo), type(self))
        return memo[id(self)]


def _plain(tensor: Any) -> Any:
    """The same tensor, of our class alone."""
    return _as_subclass(tensor.detach() if tensor.is_leaf else tensor, RemoteTensor)


def _of_class(local: torch.Tensor, kind: type, wants_grad: bool) -> Any:
    if issubclass(kind, torch.nn.Parameter):
        return torch.Tensor._make_subclass(kind, local, wants_grad)
    return _as_subclass(local, kind).requires_grad_(wants_grad)


def _again(tensor: Any, kind: type) -> Any:
    tensor.__class__ = kind
    return tensor


def joined(kind: type) -> type:
    """The class of remote tensors that are of a program's class, too; OpNotAllowed if there cannot be one."""
    if issubclass(kind, RemoteTensor):
        return kind
    for each in kind.__subclasses__():
        if issubclass(each, Joined) and each._own is kind:
            return each
    if inspect.getattr_static(kind, "__torch_dispatch__") is not inspect.getattr_static(
        torch.Tensor, "__torch_dispatch__"
    ):
        raise OpNotAllowed(_refusal(kind, "does operations itself (__torch_dispatch__)"))
    if copyreg._slotnames(kind):  # type: ignore[attr-defined]
        raise OpNotAllowed(_refusal(kind, "has __slots__, so there is no room for a handle"))
    try:
        return types.new_class(kind.__name__, (kind, Joined), {}, lambda names: names.update(_names(kind)))
    except TypeError as error:
        raise OpNotAllowed(_refusal(kind, f"cannot be joined with ours ({error})")) from None


def _refusal(kind: type, why: str) -> str:
    return (
        f"a tensor of class {kind.__name__} cannot live on a remote device, because the class {why}; "
        "move tensor.as_subclass(torch.Tensor) instead"
    )


def _names(kind: type) -> dict[str, Any]:
    listens = inspect.getattr_static(kind, "__torch_function__")
    return {
        "__module__": kind.__module__,
        "__qualname__": kind.__qualname__,
        "__new__": _making(kind),
        "__torch_function__": listens if listens is _SILENT else classmethod(_listening(kind)),
        "__reduce_ex__": Joined.__reduce_ex__,
        **_copying(kind),
        "_own": kind,
    }


def _making(kind: Any) -> Any:
    """What its methods make with type(self)(...): one of the program's class, there or here."""

    def __new__(cls: Any, *args: Any, **kwargs: Any) -> Any:
        if kind.__new__ is torch.Tensor.__new__ and args and isinstance(args[0], RemoteTensor):
            return as_subclass(args[0].detach(), kind)
        made = kind.__new__(kind, *args, **kwargs)
        if not isinstance(made, cls):  # then Python leaves it to us
            made.__init__(*args, **kwargs)
        return made

    return __new__


def _copying(kind: Any) -> dict[str, Any]:
    """How to copy one, unless the class knows it better than torch does."""
    usual = (torch.Tensor, torch.nn.Parameter)
    return {
        name: getattr(Joined, name)
        for name in ("__copy__", "__deepcopy__")
        if any(getattr(kind, name, None) is getattr(each, name, None) for each in usual)
    }


def _listening(kind: Any) -> Any:
    """The class's say in torch's functions; it knows only itself, and what it makes of a CPU result is of the CPU."""

    def __torch_function__(cls: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        known = tuple(each._own if issubclass(each, Joined) else each for each in types)
        return kind.__torch_function__(func, known, args, kwargs or {})

    return __torch_function__


def as_subclass(self: Any, cls: type) -> Any:
    """`Tensor.as_subclass`, which torch's own functions end with for tensors of another class."""
    plain = _as_subclass(self, RemoteTensor)
    return plain if issubclass(RemoteTensor, cls) else as_kind(plain, cls)


def as_kind(plain: Any, cls: type) -> Any:
    """Makes this very tensor one of a program's class."""
    plain.__class__ = joined(cls)
    return plain


def install(stack: ExitStack) -> None:
    replace(stack, RemoteTensor, "as_subclass", as_subclass)
    parameter: Any = torch.nn.Parameter
    make = parameter.__new__

    def __new__(cls: Any, data: Any = None, requires_grad: bool = True) -> Any:
        made = make(cls, data, requires_grad)
        return as_kind(made, cls) if type(made) is RemoteTensor and cls is not parameter else made

    replace(stack, parameter, "__new__", staticmethod(__new__))


def follow(places: Any, args: Any, kwargs: Any, sent: tuple[Any, Any]) -> None:
    """A call was done on plain tensors that stand for these: what it changed of their metadata is changed here, too."""
    for place in places:
        own, plain = place.get(args, kwargs), place.get(*sent)
        if isinstance(own, Joined) and own._h is not plain._h:
            refit(own, plain._m, plain.storage_offset(), plain._h)


def class_after_move(kind: type, content: type) -> type:
    """The class of a parameter whose content is exchanged for one of another class."""
    own = kind._own if issubclass(kind, Joined) else kind
    if own in (*_PLAIN, RemoteTensor):
        return content
    return joined(own) if issubclass(content, RemoteTensor) else own
