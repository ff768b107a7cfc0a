"""Random numbers that depend on (seed, epoch, index) alone, so that no worker and no order can
change them."""

import numpy as np
from jaxtyping import Float, Int

# SplitMix64: Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014,
# Fig. 17; the constants of its finaliser are Stafford's variant 13.
_GAMMA = 0x9E3779B97F4A7C15
_FIRST = 0xBF58476D1CE4E5B9
_SECOND = 0x94D049BB133111EB
_MASK = 2**64 - 1


def uniform(
    seed: int, epoch: int, indices: Int[np.ndarray, "n"] | list[int], count: int
) -> Float[np.ndarray, "n {count}"]:
    """``count`` uniform numbers in [0, 1) for each index.

    A counter-based generator: row i is a hash of (seed, epoch, indices[i]) and nothing else. The
    same row comes out in any batch, any order and any process; negative and very large seeds are
    welcome.

    >>> alone, among = uniform(0, 3, [7], 2), uniform(0, 3, [4, 7, 9], 2)
    >>> bool((alone[0] == among[1]).all())
    True
    """
    key = _mixed(_mixed(seed & _MASK) + epoch & _MASK)
    rows = np.asarray(indices).astype(np.uint64)
    # Uint64 arrays wrap around, which is what is meant.
    states = _mix(rows * np.uint64(_GAMMA) + np.uint64(key))
    counters = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(_GAMMA)
    bits = _mix(states[:, None] + counters)
    bits >>= np.uint64(11)
    return np.asarray(bits * 2.0**-53)  # the 53 upper bits fill a double's mantissa


def _mix(state: np.ndarray) -> np.ndarray:
    """SplitMix64's finaliser: a bijection of 64 bits in which every input bit reaches every output
    bit."""
    state = (state ^ (state >> np.uint64(30))) * np.uint64(_FIRST)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(_SECOND)
    return np.asarray(state ^ (state >> np.uint64(31)))


def _mixed(state: int) -> int:
    """The same for one number, after one step of the sequence (0 would map to 0)."""
    return int(_mix(np.array([(state + _GAMMA) & _MASK], dtype=np.uint64))[0])
