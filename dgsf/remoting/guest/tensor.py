"""The remote tensor: a handle on the device, and the metadata that torch needs of it here.

It holds no data.  Every operation on it goes to `dispatch`; what torch answers without an operation (printing,
pickling, copying, `.data`) is overridden here, because there is no storage to look into.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from dgsf.remoting.guest import failures
from dgsf.remoting.guest.addresses import Memory, RemoteStorage, data_ptr, refusing
from dgsf.remoting.guest.archives import local_copy
from dgsf.remoting.guest.bound import bound
from dgsf.remoting.guest.deepcopies import deep_copy, shallow_copy
from dgsf.remoting.guest.elements import named_as_torchs, printed, without_values
from dgsf.remoting.guest.layout import PENDING, Layout, set_bits
from dgsf.remoting.guest.memory import check_fits

DEVICE_NAME = "dgsf"
_make = torch.Tensor._make_wrapper_subclass
_strided = torch.strided
_plain_data = torch.Tensor.data
_nothing = dict  # the cheapest that runs no Python


class Handle:
    """The right to one remote tensor; the last one to let go frees it. -1: no memory was asked for yet.

    Of a view it also knows whose memory that is: the number and layout of the tensor that it was made for.
    Its end runs no Python: what a signal's handler raises in a finalizer is lost, and with it the user's Ctrl-C.
    """

    __slots__ = ("__del__", "free", "id", "root")

    def __init__(self, number: int, free: Any, root: Memory | None = None) -> None:
        self.free = free
        self.root = root
        self.id = number
        self.__del__ = partial(free, number) if number >= 0 else _nothing

    def become(self, number: int) -> None:
        """Its memory was asked for."""
        self.id = number
        self.__del__ = partial(self.free, number)

    def origin(self, layout: Layout) -> Memory:
        """Whose memory this is: that of the first tensor of it, by default one of this layout."""
        if self.root is None:
            self.root = Memory((self.id, layout))
        return self.root


def own_attributes(tensor: Any) -> dict[str, Any]:
    """What a program has hung on a tensor."""
    return {name: value for name, value in vars(tensor).items() if name not in ("_h", "_m", "_is_param")}


def remade(
    data: Any, requires_grad: bool | None = None, *, _h: Any = None, _m: Any = None, _is_param: Any = None
) -> Any:
    """`type(old)(value, requires_grad=...)` or `type(old)(value, **vars(old))`: a parameter like the old one.

    Tensors and parameters on the device are of one class.  Only a parameter's says more than the value, so a value
    alone is refused: a tensor where a parameter was would be trained no more, without a word.
    """
    if requires_grad is None and not _is_param:
        raise TypeError(
            "tensors and parameters on a remote device are of one class, so type(old)(value) does not say which is "
            "meant: add requires_grad=... for a parameter, or use torch.nn.Parameter or value.detach()"
        )
    return torch.nn.Parameter(data, requires_grad is None or requires_grad)


class RemoteTensor(torch.Tensor):
    """A tensor on the remote device."""

    _h: Handle
    _m: Layout

    __torch_function__ = torch._C._disabled_torch_function_impl

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        return remade(*args, **kwargs) if cls is RemoteTensor else super().__new__(cls, *args, **kwargs)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        try:
            return _dispatch(func, args, kwargs or {})
        except BaseException as error:
            failure = failures.to_raise(error)
        try:
            raise failure
        finally:
            del failure  # a frame that holds its own error would keep the call's tensors

    @property
    def data(self) -> Any:
        return _plain_data.__get__(self)

    @data.setter
    def data(self, new: torch.Tensor) -> None:
        if not isinstance(new, RemoteTensor):
            raise TypeError(
                f"cannot assign a tensor on {new.device} to .data of one on the remote device; move it there first"
            )
        if self._m.bits or new._m.bits:
            refit(self, new._m, new.storage_offset(), new._h)
            return
        _plain_data.__set__(self, new)
        self._h, self._m = new._h, new._m

    def tolist(self) -> Any:
        with torch.no_grad():
            return self.cpu().tolist()

    def numpy(self, *, force: bool = False) -> Any:
        if not force:
            raise TypeError(
                f"can't convert {bound.name} device type tensor to numpy. "
                "Use Tensor.cpu() to copy the tensor to host memory first."
            )
        return self.detach().cpu().numpy(force=True)

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return self.numpy()

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        strings = torch._tensor_str
        with torch.no_grad(), torch._C.DisableTorchFunctionSubclass():
            contents = tensor_contents or printed(self, len("tensor("))
            if contents is None:
                bare = without_values(self)
                return f"Parameter containing:\n{bare}" if getattr(self, "_is_param", False) else bare
            text: str = strings._str(self, tensor_contents=contents)
        if type(self) is not RemoteTensor:
            return text
        if getattr(self, "_is_param", False):
            inner = text[len("Parameter(") : -1] if text.startswith("Parameter(") else text
            return f"Parameter containing:\n{named_as_torchs(inner, contents)}"
        return named_as_torchs(text, contents)

    def __format__(self, spec: str) -> str:
        return self.item().__format__(spec) if self.dim() == 0 else object.__format__(self, spec)

    def __copy__(self) -> Any:
        return shallow_copy(self)

    def __deepcopy__(self, memo: dict[Any, Any]) -> Any:
        return deep_copy(self, memo)

    def __reduce_ex__(self, protocol: Any) -> Any:
        local: Any = local_copy(self)
        if getattr(self, "_is_param", False):
            local = torch.nn.Parameter(local, requires_grad=self.requires_grad)
        else:
            local.requires_grad_(self.requires_grad)
        local.__dict__.update(own_attributes(self))
        return local.__reduce_ex__(protocol)

    def data_ptr(self) -> int:
        return data_ptr(self, memory_of(self))

    def storage(self) -> Any:
        return RemoteStorage(self, memory_of(self), self.element_size())

    _typed_storage = storage

    def untyped_storage(self) -> Any:
        return RemoteStorage(self, memory_of(self), 1)

    __cuda_array_interface__ = property(refusing(AttributeError, "__cuda_array_interface__"))  # so `hasattr` says no
    __dlpack__ = refusing(BufferError, "__dlpack__")
    __dlpack_device__ = refusing(BufferError, "__dlpack_device__")

    def __coerce_same_metadata_as_tangent__(self, *_: Any) -> RemoteTensor:
        return self  # AOT autograd traced with plain tensors; as a gradient for its graph this is one

    def record_stream(self, stream: Any) -> None:
        """There is one order of work, so memory is never given away too early."""

    def share_memory_(self) -> RemoteTensor:
        return self  # as for CUDA tensors: nothing to do


RemoteTensor.__name__ = "Tensor"  # in others' errors; its qualified name is where pickle finds the class

DEVICE = torch.device("cpu")  # set by `backend` once the name is known to torch


def wrap(layout: Layout, number: int, offset: int = 0) -> RemoteTensor:
    """The tensor of a new handle."""
    stream = bound.stream
    assert stream is not None
    return share(layout, Handle(number, stream.free), offset)


def share(layout: Layout, handle: Handle, offset: int = 0) -> RemoteTensor:
    """One more tensor of a handle."""
    new = _make(RemoteTensor, layout.size, layout.stride, offset, None, layout.dtype, _strided, DEVICE)
    if layout.bits:
        set_bits(new, layout.bits)
    new._h = handle
    new._m = layout
    return new  # type: ignore[no-any-return]


def pending(dtype: torch.dtype, size: Any, stride: Any) -> RemoteTensor:
    """A tensor whose memory nobody has asked for yet; most are filled by an upload and never need the asking."""
    check_fits(dtype, size, stride)
    new = _make(RemoteTensor, size, stride, 0, None, dtype, _strided, DEVICE)
    new._h = Handle(-1, bound.need().free)
    new._m = PENDING
    return new  # type: ignore[no-any-return]


def memory_of(tensor: RemoteTensor) -> Memory:
    """Whose memory this is; one that was not asked for yet is now."""
    if tensor._m is PENDING:
        tensor.detach()
    return tensor._h.origin(tensor._m)


def refit(tensor: RemoteTensor, layout: Layout, offset: int, handle: Handle) -> None:
    """Give a tensor other metadata and another handle, in place."""
    new = share(layout, handle, offset)
    if layout.bits or tensor._m.bits:  # torch takes no data of a tensor with other bits
        set_bits(new, 0)
        set_bits(tensor, 0)
    _plain_data.__set__(tensor, new)
    if layout.bits:
        set_bits(tensor, layout.bits)
    tensor._h = handle
    tensor._m = layout


def _dispatch(func: Any, args: Any, kwargs: Any) -> Any:
    raise NotImplementedError


def set_dispatch(function: Any) -> None:
    """`dispatch` gives itself to the class: the two need each other."""
    global _dispatch
    _dispatch = function
