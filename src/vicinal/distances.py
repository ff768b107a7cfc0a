"""How embeddings are compared: `Euclidean`, `DotProduct`, `Cosine` and others, which losses take,
and functions.

The functions are accurate where rows meet and never have a NaN gradient. Everything here is
computed and returned in float32 at least, also among half precision or autocast.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import threshold

from vicinal.errors import ConfigError
from vicinal.geometry import arcs_among
from vicinal.tuples import Embeddings, wide_enough

# Rows for all, or for each row its own.
Others = Float[Tensor, "m d"] | Float[Tensor, "n m d"] | None
Metric = Literal["euclidean", "cosine", "poincare"]  # by which neighbors are searched
# Entries of a block of rows: 16 MiB of float32, so that temporaries stay far below the result.
BLOCK = 2**20
CACHED = 2**20  # entries of a matrix that stays in the cache of a CPU
RIM = 1e-5  # share of the Poincaré ball's radius that points keep from its rim, where float32 ends
# squared distance over squared norms; at it |x|² + |y|² - 2xy still has 5 of float32's 7 digits
NEAR = 0.01
DIFFERENT = 1000.0  # times: beside so much longer rows, distances of others need more than float32


def at_least_float32(x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Half precision as float32, anything else as it is."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def pairwise_distances(x: Embeddings, y: Others = None, *, squared: bool) -> Float[Tensor, "n m"]:
    """Euclidean distance, or its square, of each row of ``x`` to each row of ``y`` (default: of
    ``x``).

        d_ij = ‖x_i - y_j‖ = √(|x_i|² + |y_j|² - 2 x_i·y_j)

    The expanded form is one matrix product, but the difference of nearly equal numbers where rows
    nearly meet. So rows are centered first (a distance does not change), and pairs that are still
    near are taken from x_i - y_j itself. Rows that agree up to rounding have distance 0. There a
    distance has no derivative: its gradient is 0.

    With three axes ``y`` holds own rows for each row of ``x``, as synthetic negatives are made for
    one anchor. Backward, double backward and forward mode are supported.

    >>> pairwise_distances(torch.tensor([[0.0, 0.0], [3.0, 4.0]]), squared=False)
    tensor([[0., 5.],
            [5., 0.]])
    """
    if y is not None and y.ndim == 3:
        return row_distances(x[:, None], y, squared=squared)
    x = at_least_float32(x)
    y = None if y is None else at_least_float32(y)
    # Nothing to measure, but part of the graph.
    if not x.numel() or (y is not None and not y.numel()):
        return inner_products(x, y)
    if x.dtype == torch.float32 and not x.is_cuda and _differ_in_scale(x, y):
        # Apple's GPUs have no float64.
        wide = None if y is None else y.cpu().double()
        return pairwise_distances(x.cpu().double(), wide, squared=squared).float().to(x.device)
    with torch.autocast(x.device.type, enabled=False):
        distances: Tensor = _PairwiseDistances.apply(x, y, squared)  # type: ignore[no-untyped-call]
    return distances


def _differ_in_scale(x: Tensor, y: Tensor | None) -> bool:
    """Return whether the expanded form would lose the distances of short rows beside long ones, or
    leave the range of float32."""
    lengths = _lengths(x.detach())
    if y is not None:
        lengths = torch.cat([lengths, _lengths(y.detach())])
    shortest, longest = (float(length) for length in lengths.aminmax())
    if shortest == 0 < longest:  # a row of zeros loses nothing
        shortest = float(lengths[lengths > 0].amin())
    low, high = square_range(x.dtype)
    return not (low < shortest and longest < min(high, DIFFERENT * shortest))


def row_distances(
    x: Float[Tensor, "*#rows d"], y: Float[Tensor, "*#rows d"], *, squared: bool
) -> Float[Tensor, "*#rows"]:
    """Euclidean distance, or its square, of each row to the row at the same place; leading axes
    broadcast.

    >>> row_distances(torch.zeros(1, 2), torch.tensor([[0.0, 0.0], [3.0, 4.0]]), squared=True)
    tensor([ 0., 25.])
    """
    difference = at_least_float32(x) - at_least_float32(y)
    return squared_lengths(difference) if squared else _lengths(difference)


def inner_products(x: Embeddings, y: Others = None) -> Float[Tensor, "n m"]:
    """x_i·y_j for each row of ``x`` and each row of ``y`` (default: of ``x``); with three axes y_ij
    of its own."""
    x = at_least_float32(x)
    y = None if y is None else at_least_float32(y)
    with torch.autocast(x.device.type, enabled=False):
        if y is not None and y.ndim == 3:
            return (y @ x[:, :, None]).squeeze(dim=2)
        return x @ (x if y is None else y).T


def cosine_similarity(x: Embeddings, y: Others = None) -> Float[Tensor, "n m"]:
    """Cosine of the angle between each row of ``x`` and each row of ``y`` (default: of ``x``); a
    zero row has 0."""
    return inner_products(unit_rows(x), None if y is None else unit_rows(y))


def unit_rows(x: Float[Tensor, "*rows d"]) -> Float[Tensor, "*rows d"]:
    """Rows divided by their length. A row of zeros has no direction: it stays 0 and passes gradient
    0.

    >>> unit_rows(torch.tensor([[3.0, 4.0], [0.0, 0.0]]))
    tensor([[0.6000, 0.8000],
            [0.0000, 0.0000]])
    """
    x = at_least_float32(x)
    if not x.shape[-1]:
        return x
    low, high = square_range(x.dtype)
    if x.numel() and not x.is_cuda:  # a GPU is not waited for
        lengths = _lengths(x)[..., None]
        shortest, longest = lengths.detach().aminmax()
        # As nearly always: then nothing below changes a thing.
        if low < float(shortest) and float(longest) < high:
            return x / lengths
    # A row whose squares would leave the range of its type is scaled first; others are divided by
    # 1.
    largest = x.detach().abs().amax(dim=-1, keepdim=True).clamp(min=torch.finfo(x.dtype).tiny)
    x = x / (largest / largest.clamp(low, high))
    lengths = _lengths(x)[..., None]
    return x / lengths.masked_fill(lengths == 0, torch.inf)


def squared_lengths(x: Float[Tensor, "*rows d"]) -> Float[Tensor, "*rows"]:
    """|x_i|² of each row."""
    return at_least_float32(x).square().sum(dim=-1)


def square_range(dtype: torch.dtype) -> tuple[float, float]:
    """Return between which lengths squares, and squares of squares, stay in the range of a type."""
    return torch.finfo(dtype).tiny ** 0.25, torch.finfo(dtype).max ** 0.25


def _lengths(x: Tensor) -> Tensor:
    return torch.linalg.vector_norm(x, dim=-1)  # its gradient at 0 is 0


@dataclass(frozen=True)
class Distance(ABC):
    """How a loss compares two embeddings, with what mining, HDML and LoOp ask of it.

    Attributes:
        normalize: whether embeddings are put on the unit sphere first, so that only their
            directions count.
        larger_is_closer: whether it is a similarity.
    """

    normalize: bool = True
    larger_is_closer: ClassVar[bool] = False

    @abstractmethod
    def __call__(self, x: Embeddings, y: Others = None) -> Float[Tensor, "n m"]:
        """Compare each row of ``x`` with each row of ``y``, with rows of its own (three axes), or
        with ``x`` (None)."""

    def between_arcs(
        self,
        rows: Embeddings,
        first: Int[Tensor, "p"],
        second: Int[Tensor, "p"],
        *,
        points: bool = False,
    ) -> Float[Tensor, "q p"]:
        """Compare arcs on the unit sphere from rows ``first`` to rows ``second`` by their nearest
        points.

        They are compared with each other, or with all rows as ``points``; needs ``normalize``.
        """
        raise ConfigError(
            f"{type(self).__name__} has no nearest points of arcs on the unit sphere. Use "
            "Euclidean."
        )

    def normalized_once(self, rows: Embeddings) -> "tuple[Tensor, Distance]":
        """Return rows, and how to compare them, so that no row is normalized again each time it is
        compared."""
        return (unit_rows(rows), replace(self, normalize=False)) if self.normalize else (rows, self)

    def nearest(self, values: Tensor, dim: int | tuple[int, ...]) -> Tensor:
        """Return the value of the closest along ``dim``."""
        return values.amax(dim=dim) if self.larger_is_closer else values.amin(dim=dim)


@dataclass(frozen=True)
class Euclidean(Distance):
    """Euclidean distance.

    Attributes:
        squared: whether it is squared.
        scale: a factor of the distance, or of its square.
    """

    squared: bool = False
    scale: float = 1.0

    def __call__(self, x: Embeddings, y: Others = None) -> Float[Tensor, "n m"]:
        if self.normalize:
            x = unit_rows(x)
            y = None if y is None else unit_rows(y)
        found = pairwise_distances(x, y, squared=self.squared)
        return found if self.scale == 1 else self.scale * found

    def between_arcs(
        self, rows: Tensor, first: Tensor, second: Tensor, *, points: bool = False
    ) -> Tensor:
        found = arcs_among(rows, first, second, points=points, squared=self.squared)
        return found if self.scale == 1 else self.scale * found


@dataclass(frozen=True)
class DotProduct(Distance):
    """Inner product, a similarity; of normalized embeddings it is the cosine."""

    normalize: bool = False
    larger_is_closer: ClassVar[bool] = True

    def __call__(self, x: Embeddings, y: Others = None) -> Float[Tensor, "n m"]:
        if self.normalize:
            return cosine_similarity(x, y)
        return inner_products(*wide_enough(x, y)).to(at_least_float32(x).dtype)

    def between_arcs(
        self, rows: Tensor, first: Tensor, second: Tensor, *, points: bool = False
    ) -> Tensor:
        return arcs_among(rows, first, second, points=points)


@dataclass(frozen=True)
class Cosine(DotProduct):
    """Cosine similarity."""

    normalize: bool = True


@dataclass(frozen=True)
class Poincare(Distance):
    """Hyperbolic distance of points in the Poincaré ball of curvature -c, whose radius is 1/√c.

        d(x, y) = 1/√c · arcosh(1 + 2 c |x - y|² / ((1 - c|x|²)(1 - c|y|²)))
            Nickel and Kiela 2017, Eq. (1), c = 1
                = 2/√c · arsinh(√c |x - y| / √((1 - c|x|²)(1 - c|y|²)))
                = 2/√c · artanh(√c |-x ⊕ y|)                  Ermolov et al. 2022; ⊕ Möbius addition

    The second form is computed: it keeps all digits of near points. `exponential_map` puts vectors
    into the ball; a row on or beyond its rim is taken just inside.

    Attributes:
        curvature: c.

    >>> center, points = torch.tensor([[0.0, 0.0]]), torch.tensor([[0.0, 0.0], [0.5, 0.0]])
    >>> Poincare()(center, points)  # 2 artanh(1/2) = log 3
    tensor([[0.0000, 1.0986]])
    """

    normalize: bool = False
    curvature: float = 1.0

    def __post_init__(self) -> None:
        if self.normalize or not 0 < self.curvature < float("inf"):
            raise ConfigError(
                "points of the Poincaré ball are not normalized and its curvature is above 0, got "
                f"normalize={self.normalize} and curvature={self.curvature}."
            )

    def __call__(self, x: Embeddings, y: Others = None) -> Float[Tensor, "n m"]:
        own = squared_lengths(x)
        return self.of_lengths(
            pairwise_distances(x, y, squared=False), own, own if y is None else squared_lengths(y)
        )

    def of_lengths(
        self,
        apart: Float[Tensor, "n m"],
        x: Float[Tensor, "n"],
        y: Float[Tensor, "m"] | Float[Tensor, "n m"],
    ) -> Float[Tensor, "n m"]:
        """Return the distances of points that are ``apart`` by Euclid and whose squared lengths are
        ``x`` and ``y``."""
        root = math.sqrt(self.curvature)
        least = torch.finfo(apart.dtype).eps
        x, y = ((1 - self.curvature * squares).clamp(min=least) for squares in (x, y))
        return 2 / root * torch.asinh(root * apart / (x[:, None] * y).sqrt())


def exponential_map(
    x: Float[Tensor, "*rows d"], curvature: float, clip: float
) -> Float[Tensor, "*rows d"]:
    """Put vectors into the Poincaré ball of curvature -c by the exponential map at 0, their length
    clipped to r first.

        exp_0(v) = tanh(√c |v|) v / (√c |v|),   v = min(1, r/|x|) x              Ermolov et al. 2022

    Clipping keeps points from the rim, where gradients vanish (Guo et al. 2022).

    >>> exponential_map(torch.tensor([[3.0, 4.0], [0.0, 0.0]]), curvature=1.0, clip=2.3)
    tensor([[0.5881, 0.7841],
            [0.0000, 0.0000]])
    """
    root = math.sqrt(curvature)
    lengths = _lengths(at_least_float32(x))[..., None].clamp(max=clip)
    return unit_rows(x) * torch.tanh(root * lengths).clamp(max=1 - RIM) / root


@dataclass(frozen=True)
class SignalToNoise(Distance):
    """Signal-to-noise distance (Yuan et al. 2019), var(x_i - y_j) / var(x_i) over the dimensions;
    not symmetric.

    Noise of variance 0 has distance 0, and so has everything from a row that is the same in all
    dimensions.

    >>> others = torch.tensor([[1.0, -1.0], [2.0, 0.0], [-1.0, 1.0]])
    >>> SignalToNoise()(torch.tensor([[1.0, -1.0]]), others)
    tensor([[0., 0., 4.]])
    """

    normalize: bool = False

    def __call__(self, x: Embeddings, y: Others = None) -> Float[Tensor, "n m"]:
        dtype = at_least_float32(x).dtype
        x, y = wide_enough(x, y)
        x = self._centered(x)
        y = None if y is None else self._centered(y)
        signal = squared_lengths(x)[:, None]
        found = pairwise_distances(x, y, squared=True) / signal.masked_fill(signal == 0, torch.inf)
        return found.to(dtype)

    def _centered(self, rows: Float[Tensor, "*rows d"]) -> Float[Tensor, "*rows d"]:
        rows = unit_rows(rows) if self.normalize else rows
        return rows - rows.mean(dim=-1, keepdim=True)


class Negative(Distance):
    """Minus another distance or similarity, for formulas that are written with the other kind.

    >>> Negative(Cosine())(torch.tensor([[1.0, 0.0]]), torch.tensor([[2.0, 0.0]]))
    tensor([[-1.]])
    """

    of: Distance

    def __init__(self, of: Distance) -> None:
        for name, value in (
            ("of", of),
            ("normalize", of.normalize),
            ("larger_is_closer", not of.larger_is_closer),
        ):
            object.__setattr__(self, name, value)

    def __call__(self, x: Embeddings, y: Others = None) -> Float[Tensor, "n m"]:
        return -self.of(x, y)

    def normalized_once(self, rows: Tensor) -> tuple[Tensor, Distance]:
        rows, of = self.of.normalized_once(rows)
        return rows, Negative(of)

    def between_arcs(
        self, rows: Tensor, first: Tensor, second: Tensor, *, points: bool = False
    ) -> Tensor:
        return -self.of.between_arcs(rows, first, second, points=points)


class _PairwiseDistances(torch.autograd.Function):
    """``pairwise_distances`` with its derivatives; ``y = None`` stands for ``x``."""

    @staticmethod
    def forward(x: Tensor, y: Tensor | None, squared: bool) -> Tensor:
        return _expanded(x, y, squared)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, y, ctx.squared = inputs
        ctx.save_for_backward(x, y, output)
        ctx.save_for_forward(x, y, output)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor | None, None]:
        """∂d_ij/∂x_i = (x_i - y_j) / d_ij, and 2 (x_i - y_j) of the square."""
        x, y, distances = ctx.saved_tensors
        # Pulls of 1/d meet rows that cancel: of shorter rows less is lost.
        rows, columns = _centered(x, y)
        row_parts = []
        column_part = torch.zeros_like(columns)
        with torch.autocast(x.device.type, enabled=False):
            for block in _blocks(distances):
                # Among the rows themselves d is symmetric, so both places of a pair pull with the
                # same weight.
                pull = (
                    gradient[block]
                    if y is not None
                    else _transposed(gradient[:, block]).add_(gradient[block])
                )
                pull = 2 * pull if ctx.squared else pull / threshold(distances[block], 0.0, 1.0)
                row_parts.append(pull.sum(dim=1, keepdim=True) * rows[block] - pull @ columns)
                if y is not None and ctx.needs_input_grad[1]:
                    column_part = (
                        column_part + pull.sum(dim=0)[:, None] * columns - pull.T @ rows[block]
                    )
        row_part = row_parts[0] if len(row_parts) == 1 else torch.cat(row_parts)
        return row_part, None if y is None else column_part, None

    @staticmethod
    def jvp(ctx: Any, x_tangent: Tensor | None, y_tangent: Tensor | None, _: None) -> Tensor:
        """ḋ_ij = (x_i - y_j)·(ẋ_i - ẏ_j) / d_ij, and twice the product for the square."""
        x, y, distances = ctx.saved_tensors
        rows, columns = _centered(x, y)
        if y is None:
            y_tangent = x_tangent
        product = torch.zeros_like(distances)
        if x_tangent is not None:
            product = product + (rows * x_tangent).sum(dim=1, keepdim=True) - x_tangent @ columns.T
        if y_tangent is not None:
            product = product + (columns * y_tangent).sum(dim=1) - rows @ y_tangent.T
        return 2 * product if ctx.squared else product / threshold(distances, 0.0, 1.0)


def _centered(x: Tensor, y: Tensor | None) -> tuple[Tensor, Tensor]:
    """Both sets of rows about the mean of the columns' rows, a constant: distances do not depend on
    it."""
    center = (x if y is None else y).detach().mean(dim=0)
    rows = x - center
    return rows, rows if y is None else y - center


def _transposed(matrix: Tensor) -> Tensor:
    """Transpose into a copy."""
    # A dense matrix is transposed by one thread, a padded one by all: faster, as long as it stays
    # in the cache.
    if not matrix.is_cuda and matrix.numel() <= CACHED:
        padded = matrix.new_empty(len(matrix), matrix.shape[1] + 16)
        matrix = padded[:, : matrix.shape[1]].copy_(matrix)
    return matrix.T.clone(memory_format=torch.contiguous_format)


def _blocks(matrix: Tensor) -> list[slice]:
    step = max(1, BLOCK // matrix.shape[1])
    return [slice(start, min(start + step, len(matrix))) for start in range(0, len(matrix), step)]


def _expanded(x: Tensor, y: Tensor | None, squared: bool) -> Tensor:
    """Return the distance, or its square, of each row of ``x`` to each row of ``y`` (None: of
    ``x``)."""
    result = x.new_empty(len(x), len(x if y is None else y))
    # of |x|² + |y|², about the mean or as given: below it there is only rounding
    coincident = (16 * torch.finfo(x.dtype).eps) ** 2
    if x.is_cuda:
        # float64 resolves near pairs, and cheaply; looking for them would make the host wait for
        # the device.
        x = x.double()
        y = None if y is None else y.double()
    rows, columns = _centered(x, y)
    row_norms = squared_lengths(rows)
    column_norms = row_norms if y is None else squared_lengths(columns)
    largest = column_norms.max()
    others = x if y is None else y
    for block in _blocks(result):
        own = x[block]
        norms = row_norms[block, None]
        squares = torch.mm(-2 * rows[block], columns.T, out=None if x.is_cuda else result[block])
        squares.add_(column_norms).add_(norms)
        if y is None:
            squares.diagonal(block.start).fill_(torch.inf)  # not to be found near
        if x.is_cuda:
            given = squared_lengths(own)[:, None] + squared_lengths(others)
            rounding = coincident * torch.minimum(norms + column_norms, given)
            squares.masked_fill_(squares <= rounding, 0)
        elif (squares.amin(dim=1, keepdim=True) < NEAR * (norms + largest)).any():
            near = (squares < NEAR * (norms + column_norms)).nonzero()
            for i, j in (
                part.unbind(dim=1) for part in torch.split(near, max(1, BLOCK // x.shape[1]))
            ):
                exact = squared_lengths(own[i] - others[j])
                given = squared_lengths(own[i]) + squared_lengths(others[j])
                rounding = coincident * torch.minimum(norms[i, 0] + column_norms[j], given)
                squares[i, j] = exact.masked_fill_(exact <= rounding, 0)
        if y is None:
            squares.diagonal(block.start).fill_(0)
        if not squared:
            squares.sqrt_()
        if x.is_cuda:
            result[block] = squares
    return result
