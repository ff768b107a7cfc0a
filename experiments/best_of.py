"""Which rows of a table held-out classes choose, and how these do on the test classes.

The highest test score of many rows is too high by the choice; a row chosen on held-out classes is
tested once.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vicinal.bench.page import interval, score
from vicinal.bench.run import Outcome
from vicinal.bench.summary import held_out_scores, tested
from vicinal.evaluation.statistics import t_interval
from vicinal.reports.tables import metric_title


@dataclass(frozen=True)
class BestOf:
    """The remark of a table: the best row of each kind, and the first kind's minus the second's,
    paired by seed.

    Attributes:
        kinds: the names of rows, by kind. Scores are compared over the folds or seeds that all of
            them have.
    """

    kinds: Mapping[str, Sequence[str]]

    def __call__(self, outcome: Outcome) -> str:
        table = outcome.table
        names = [name for names in self.kinds.values() for name in names]
        scores = {name: held_out_scores(table.row(name), outcome) for name in names}
        shared = set.intersection(*map(set, scores.values()))
        if not shared:
            lacking = [name for name, found in scores.items() if not found] or names
            few = ", ".join(lacking[:3]) + (" and others" if len(lacking) > 3 else "")
            return (
                f"Which row is the best is not chosen yet: {few} have no held-out score of their "
                "own; "
                f"`vicinal bench {table.source} --trials 1` gives each row one."
            )
        means = {
            name: sum(found[key] for key in shared) / len(shared) for name, found in scores.items()
        }
        chosen = {kind: max(names, key=means.__getitem__) for kind, names in self.kinds.items()}
        values = [tested(name, outcome) for name in chosen.values()]
        first = metric_title(table.metrics[0])
        named = "; ".join(
            f"of the {kind} {name} (held out {100 * means[name]:.1f}, test {first} "
            f"{score(t_interval(list(found.values())) if found else None)})"
            for (kind, name), found in zip(chosen.items(), values, strict=True)
        )
        last = ""
        if len(values) > 1 and (seeds := values[0].keys() & values[1].keys()):
            apart = [values[0][seed] - values[1][seed] for seed in sorted(seeds)]
            found = interval(t_interval(apart))
            last = f". On the test classes the first minus the second is {found}"
        return f"Chosen on held-out training classes: {named}{last}."
