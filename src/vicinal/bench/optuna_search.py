"""Optuna's tree-structured Parzen estimator (Bergstra et al. 2011) as the searcher; an extra, ``vicinal[tune]``."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from vicinal.bench.search_space import Choice, Range, Space
from vicinal.errors import ConfigError

if TYPE_CHECKING:
    from vicinal.bench.tuning import Trial


def require_optuna() -> Any:
    """The package, or the sentence that says how to come by it."""
    try:
        import optuna
    except ImportError:
        raise ConfigError(
            "the searcher optuna was asked for, but it is not installed. `pip install 'vicinal[tune]'`, or leave "
            "--searcher out for the random search."
        ) from None
    return optuna


def next_values(space: Space, known: "Sequence[Trial]", seed: int) -> dict[str, str]:
    """The settings to try next, given the trials that are done.

    The study is made anew from the journal each time, so nothing else has to be kept for a resume.
    """
    optuna = require_optuna()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    scales: dict[str, Any] = {key: _distribution(optuna, part) for key, part in space.items()}
    # Seeded by how far the search is: the same seed each time would make the same first draws each time.
    sampler = optuna.samplers.TPESampler(seed=seed * 10_007 + len(known))
    study = optuna.create_study(direction="maximize", sampler=sampler)
    for trial in known:
        if trial.values:  # the recipe as it stands has values of its own, which are not among these
            values = {key: _number(space[key], text) for key, text in trial.values.items()}
            study.add_trial(optuna.trial.create_trial(params=values, distributions=scales, value=trial.mean))
    asked = study.ask(scales)
    return {key: _text(space[key], asked.params[key]) for key in sorted(space)}


def _distribution(optuna: Any, part: Range | Choice) -> Any:
    if isinstance(part, Choice):
        return optuna.distributions.CategoricalDistribution(part.values)
    if part.whole:
        return optuna.distributions.IntDistribution(int(part.low), int(part.high))
    return optuna.distributions.FloatDistribution(part.low, part.high, log=part.log)


def _number(part: Range | Choice, text: str) -> str | int | float:
    if isinstance(part, Choice):
        return text
    return int(text) if part.whole else min(part.high, max(part.low, float(text)))


def _text(part: Range | Choice, value: str | int | float) -> str:
    return f"{value:.4g}" if isinstance(part, Range) and not part.whole else str(value)
