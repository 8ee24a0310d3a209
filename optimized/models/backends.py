"""Backends by name, and NumPy backends as operations on tensors."""

import copyreg
import sys
from collections.abc import Callable
from importlib import import_module
from pickle import PicklingError
from typing import Any

import torch
from nibblespec.optimized.arrays import FLOAT_DTYPES, SCALE_ZERO_DTYPES, Array, to_array, to_tensor
from nibblespec.optimized.layout import DashqLayout, group_count
from nibblespec.optimized.operations import Operations, one_after_the_other
from nibblespec.spec.dashq_packed_linear.v1.manifest import Module
from nibblespec.spec.operations import OPERATIONS
from torch import Tensor

HOMES = {"torch": "nibblespec.optimized.pytorch", "optimized": "nibblespec.optimized.ops"}
"""Modules that hold an `Operations` set under the name `operations`."""

_NAMES = {dtype: name for name, dtype in SCALE_ZERO_DTYPES.items()}


def operations_of(backend: object) -> Operations:
    """Return the operations of "torch", "optimized", an `Operations` set or a NumPy backend.

    A NumPy backend is any object with the operations of `nibblespec.spec.operations`; those that
    it lacks raise when they are called. Raises ValueError for another name, TypeError for anything
    else.
    """
    if isinstance(backend, Operations):
        return backend
    if isinstance(backend, str):
        if backend not in HOMES:
            raise ValueError(f"backend: expected {' or '.join(HOMES)}, found {backend!r}")
        operations: Operations = import_module(HOMES[backend]).operations
        return operations
    if not any(callable(getattr(backend, name, None)) for name in OPERATIONS):
        raise TypeError(
            f"backend: expected {', '.join(HOMES)}, Operations or an object with operations such "
            f"as {OPERATIONS[0]}, found {type(backend).__name__}"
        )
    wrapped = {name: _wrapped(backend, name) for name in OPERATIONS}
    both = one_after_the_other(wrapped["hadamard"], wrapped["quantize_activations"])
    return Operations(**wrapped, quantize_transformed=both)


class _Unnamed:
    """Operations that another process does not find by name: they are copied, and not pickled."""

    def __init__(self, operations: Operations) -> None:
        self.operations = operations

    def __deepcopy__(self, _: object) -> "_Unnamed":
        return self

    def __reduce__(self) -> str:
        raise PicklingError(
            f"operations: expected those of {' or '.join(HOMES)}, found others, which no other "
            f"process can find; give it the folder's name, and have it call load_model"
        )


def _named(operations: Operations) -> tuple[Callable[..., Operations], tuple[object]]:
    """Return what pickle and copy make operations of: a model is pickled without its backend."""
    homes = ((name, sys.modules.get(home)) for name, home in HOMES.items())
    known = (name for name, home in homes if getattr(home, "operations", None) is operations)
    return _restored, (next(known, _Unnamed(operations)),)


def _restored(found: str | _Unnamed) -> Operations:
    return found.operations if isinstance(found, _Unnamed) else operations_of(found)


copyreg.pickle(Operations, _named)


def _wrapped(backend: object, name: str) -> Callable[..., Any]:
    """Return an operation on tensors that calls the backend's on NumPy arrays, on the host."""

    def call(*arguments: Any) -> Any:  # noqa: ANN401  # whatever the operation takes
        function = getattr(backend, name, None)
        if not callable(function):
            found = getattr(backend, "name", type(backend).__name__)
            raise TypeError(f"backend {found}: expected the operation {name}, found none")
        device = next(one.device for one in arguments if isinstance(one, Tensor))
        result = function(*_described(name, arguments))
        if isinstance(result, tuple):
            return tuple(to_tensor(part).to(device) for part in result)
        return to_tensor(result).to(device)

    return call


def _described(name: str, arguments: tuple[Any, ...]) -> list[Any]:
    """Return arguments as the specification has them: arrays, names of dtypes, a Module."""
    given = [_plain(argument) for argument in arguments]
    place = next((i for i, one in enumerate(arguments) if isinstance(one, DashqLayout)), None)
    if place is not None:
        scale = arguments[1 if name == "dashq_reconstruct" else 2]
        linear = arguments[0].dtype if name == "dashq_linear" else arguments[-1]
        given[place] = _module(arguments[place], _NAMES[scale.dtype], _NAMES[linear])
    return given


def _plain(argument: Any) -> Any:  # noqa: ANN401  # whatever the operation takes
    if isinstance(argument, Tensor):
        return _read_only(to_array(argument))
    if isinstance(argument, torch.dtype):
        return next(name for name, dtype in FLOAT_DTYPES.items() if dtype == argument)
    return argument


def _read_only(array: Array) -> Array:
    """Return a view that a backend cannot write through, as the specification promises."""
    view = array.view()
    view.flags.writeable = False
    return view


def _module(layout: DashqLayout, scale_zero_dtype: str, linear_dtype: str) -> Module:
    return Module(
        nbits=layout.nbits,
        group_size=layout.group_size,
        in_features=layout.columns,
        out_features=layout.rows,
        quant_in_features=layout.stored_columns,
        num_groups=group_count(layout),
        packing=f"int{layout.nbits}_packed_u32",
        scale_zero_dtype=scale_zero_dtype,
        linear_dtype=linear_dtype,
    )
