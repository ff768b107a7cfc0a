"""What tuning may try: ``key=low..high``, ``key=low..high:log`` or ``key=a,b,c``; random draws, or Optuna's.

``key+key=low..high`` searches one value for several settings.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from zlib import crc32

import numpy as np

from vicinal.errors import ConfigError


@dataclass(frozen=True)
class Range:
    """Numbers from ``low`` to ``high``; whole ones if both ends are written as such."""

    low: float
    high: float
    log: bool = False
    whole: bool = False

    def draw(self, share: float) -> str:
        """The value at ``share`` (0 to 1) of the range, as it is written on the command line.

        >>> Range(1e-5, 1e-1, log=True).draw(0.5), Range(2, 8, whole=True).draw(0.999)
        ('0.001', '8')
        """
        if self.whole:
            return str(min(int(self.high), math.floor(self.low + share * (self.high - self.low + 1))))
        if self.log:
            return f"{math.exp(math.log(self.low) + share * math.log(self.high / self.low)):.4g}"
        return f"{self.low + share * (self.high - self.low):.4g}"


@dataclass(frozen=True)
class Choice:
    """One of some values."""

    values: tuple[str, ...]

    def draw(self, share: float) -> str:
        return self.values[min(len(self.values) - 1, math.floor(share * len(self.values)))]


Space = Mapping[str, Range | Choice]
_DIGITS = 16  # of a share that are spread; more trials than 2^16 would not be


def parse(words: Sequence[str]) -> tuple[dict[str, Range | Choice], list[str]]:
    """The space that some words span, and the words that fix a setting.

    >>> space, fixed = parse(["loss.margin=0.1..0.5", "model.dim=64,128", "training.epochs=5"])
    >>> space["loss.margin"], space["model.dim"], fixed
    (Range(low=0.1, high=0.5, log=False, whole=False), Choice(values=('64', '128')), ['training.epochs=5'])
    """
    space: dict[str, Range | Choice] = {}
    fixed: list[str] = []
    for word in words:
        key, equals, text = word.partition("=")
        if not equals or not key:
            raise ConfigError(f"a setting is written key=value, key=low..high or key=a,b,c, got {word!r}.")
        if key in space or any(other.startswith(f"{key}=") for other in fixed):
            raise ConfigError(f"{key} is given twice; name each setting once.")
        if ".." in text:
            space[key] = _range(key, text)
        elif "," in text:
            space[key] = Choice(tuple(part.strip() for part in text.split(",") if part.strip()))
        else:
            fixed.append(word)
    return space, fixed


def words_of(values: Mapping[str, str]) -> list[str]:
    """Values as settings; a key ``a+b`` gives both the same value.

    >>> words_of({"loss.lambda1+loss.lambda2": "0.5"})
    ['loss.lambda1=0.5', 'loss.lambda2=0.5']
    """
    return [f"{key}={value}" for keys, value in values.items() for key in keys.split("+")]


def random_trial(space: Space, seed: int, number: int) -> dict[str, str]:
    """The values of trial ``number`` (1, 2, ...), each a function of seed, number and its key alone.

    So a search continues after a stop, and two spaces that share a range try the same values of it, trial by trial: a
    method and its baseline. Values are random and spread: the first 2^k trials have one in each 2^k-th part of a
    range. Independent draws would leave a third of these parts untried.
    """
    return {key: part.draw(_share(key, seed, number - 1)) for key, part in sorted(space.items())}


def _share(key: str, seed: int, place: int) -> float:
    """The van der Corput sequence, each digit flipped at random by the digits before it (Owen 1995).

    Each doubling of the trials has an order of the key's own, or all settings would move together. scipy's scrambled
    Halton and Sobol sequences draw all dimensions at once: adding a setting would change the values of the others.
    """
    name = crc32(key.encode())
    if place > 1:
        doubling = 1 << (place.bit_length() - 1)
        place = doubling + int(np.random.default_rng([seed, name, doubling]).permutation(doubling)[place - doubling])
    share = float(np.random.default_rng([seed, name, _DIGITS, place]).random()) / (1 << _DIGITS)
    for digit in range(_DIGITS):
        flipped = int(np.random.default_rng([seed, name, digit, place % (1 << digit)]).integers(2))
        share += ((place >> digit) % 2 ^ flipped) / (2 << digit)
    return share


def _range(key: str, text: str) -> Range:
    ends, _, scale = text.partition(":")
    texts = [end.strip() for end in ends.split("..", 1)]
    try:
        low, high = map(float, texts)
    except ValueError:
        low = high = math.nan
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise ConfigError(f"{key} is searched in low..high with low < high, such as 0.1..0.5, got {text!r}.")
    if scale not in ("", "log"):
        raise ConfigError(f"{key} is searched on a plain scale or on `:log`, got `:{scale}`.")
    log, whole = scale == "log", all(re.fullmatch(r"-?\d+", end) for end in texts)
    if log and low <= 0:
        raise ConfigError(f"{key} is searched on a log scale, which starts above 0, got {text!r}.")
    if log and whole:
        raise ConfigError(f"{key}: whole numbers have no log scale here. List them, such as {key}=1,2,4.")
    return Range(low, high, log, whole)


def require_optuna() -> Any:
    """The package behind ``--searcher optuna``, or an error that says how to install it."""
    try:
        import optuna
    except ImportError:
        raise ConfigError(
            "--searcher optuna needs optuna, which is not installed. Run `pip install 'vicinal[tune]'`, or leave "
            "--searcher out for the random search."
        ) from None
    return optuna


def optuna_trial(space: Space, known: Sequence[tuple[Mapping[str, str], float]], seed: int) -> dict[str, str]:
    """What Optuna's tree-structured Parzen estimator (Bergstra et al. 2011) tries next, given values and their scores.

    The study is made anew from the journal each time, so nothing else has to be kept for a resume.
    """
    optuna = require_optuna()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    scales: dict[str, Any] = {key: _distribution(optuna.distributions, part) for key, part in space.items()}
    # Seeded by how far the search is: the same seed each time would make the same first draws each time.
    sampler = optuna.samplers.TPESampler(seed=seed * 10_007 + len(known))
    study = optuna.create_study(direction="maximize", sampler=sampler)
    for values, score in known:
        if values:  # trial 0, as it stands, has values of its own, which are not among these
            numbers = {key: _number(space[key], text) for key, text in values.items()}
            study.add_trial(optuna.trial.create_trial(params=numbers, distributions=scales, value=score))
    asked = study.ask(scales)
    return {key: _text(space[key], asked.params[key]) for key in sorted(space)}


def _distribution(kinds: Any, part: Range | Choice) -> Any:
    if isinstance(part, Choice):
        return kinds.CategoricalDistribution(part.values)
    if part.whole:
        return kinds.IntDistribution(int(part.low), int(part.high))
    return kinds.FloatDistribution(part.low, part.high, log=part.log)


def _number(part: Range | Choice, text: str) -> str | int | float:
    if isinstance(part, Choice):
        return text
    return int(text) if part.whole else min(part.high, max(part.low, float(text)))


def _text(part: Range | Choice, value: str | int | float) -> str:
    return f"{value:.4g}" if isinstance(part, Range) and not part.whole else str(value)
