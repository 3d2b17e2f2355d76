"""The tensors of a kernel: those of the operator at given sizes, and temporaries of its stages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ..dtypes import DType
from ..errors import UnsupportedError
from .affine import normalize
from .build import compare, const, sub
from .domains import closure, counterexample, largest, within
from .expr import Call, Const, Expr, Index, Range, Size, indices_of, substitute
from .op import Tensor


@dataclass(slots=True)
class Tensors:
    """What is declared so far, with the element types of all (`env`); `sizes` are numbers."""

    env: dict[str, DType]
    sizes: Mapping[str, int]
    declared: dict[str, Tensor] = field(default_factory=dict)

    def bound(self, expr: Expr) -> Expr:
        """An expression with the numbers of sizes in it."""
        if not self.sizes:
            return expr
        values: dict[Expr, Expr] = {Size(n): const(v) for n, v in self.sizes.items()}
        return normalize(substitute(expr, values))

    def declare(self, name: str, dtype: DType, shape: Iterable[Expr], role: str = "temp") -> None:
        """A tensor of a shape, whose extents are at least 0."""
        bound = (self.bound(extent) for extent in shape)
        extents = (const(max(0, int(e.value))) if isinstance(e, Const) else e for e in bound)
        self.declared[name] = Tensor(name, dtype, tuple(extents), role)
        self.env[name] = dtype

    def temporary(
        self, name: str, dtype: DType, outer: Iterable[str], ranges: Mapping[str, Range]
    ) -> tuple[Expr, ...]:
        """Declares a tensor with an element for every instance of `outer`; where each one lies."""
        place: list[Expr] = []
        shape: list[Expr] = []
        for index in outer:
            r = ranges[index]
            dims = closure([index], ranges)
            origin: Expr = const(0)
            inside = within(ranges[d] for d in dims)
            if counterexample(dims, inside, [compare("le", const(0), r.lo)]) is not None:
                origin = r.lo
            at = sub(Index(index), origin)
            end = sub(r.hi, origin)
            if indices_of(end) or indices_of(origin):
                top = largest(dims, at, inside)
                if top is None:
                    raise UnsupportedError(
                        f"a temporary over {index} has no extent that is one formula; "
                        f"give {index} a simpler range"
                    )
                end = normalize(Call("add", (top, const(1))))
            place.append(normalize(at))
            shape.append(normalize(end))
        self.declare(name, dtype, shape)
        return tuple(place)

    def unique(self, name: str) -> str:
        """`name`, numbered where there is a tensor called so."""
        n, found = 1, name
        while found in self.declared:
            n += 1
            found = f"{name}_{n}"
        return found
