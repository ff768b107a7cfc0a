"""What tuning searches for a row of a table: rate, steps and margin in the same ranges for all, then its method's own.

A row and its twin so try the same rates, steps and margins, trial by trial (``search_space.random_trial``); a method
adds what only it has. What a row sets itself (α of a sweep, an ablation) stays as it is, but for its rate and epochs,
which are where the search for all begins.
"""

from vicinal.bench.search_space import Choice, Range, Space, parse
from vicinal.bench.tables import Row
from vicinal.methods.contender import Contender
from vicinal.training.overrides import apply
from vicinal.training.recipe import Recipe, find_recipe

RATE, STEPS = "optimisation.learning_rate", "epochs"
DECADES = 10.0  # the rate, up and down from the recipe's own

_MARGIN = ("method.margin=0.1..0.4:log",)  # around the 0.2 that all of them start from
_LIFTED = ("anml.margin=0.5..2.0:log",)
# Song et al.'s grids of α, β and λ1, with a little more of the last: how sharply, and at which similarity, pairs part.
_SHARP, _LAMBDA = ("anml.alpha=1.0..3.0", "anml.beta=25.0..35.0"), "anml.lambda1=0.4..0.7"
# Where a loss begins to let go: its margin, or what it has in place of one.
_OF_LOSS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("triplet", "batch_all", "batch_hard", "semi_hard", "hphn", "lifted_min", "hierarchical"), _MARGIN),
    "margin": _MARGIN,
    "contrastive": ("method.contrastive_margin=0.5..1.5",),
    **dict.fromkeys(("lifted", "improved_lifted"), _LIFTED),
    **dict.fromkeys(("multi_similarity", "danml"), (*_SHARP, _LAMBDA)),
    "original": _SHARP,
    "circle": ("anml.relaxation=0.2..0.6", "anml.circle_gamma=40.0..160.0:log"),
    "normalized_softmax": ("method.temperature=0.025..0.1:log",),
}
_OWN_OF_LOSS = {  # of those that stand in a table as methods, beyond their twins
    "danml": ("anml.sigma=0.0..0.1",),
    "improved_lifted": (*_SHARP, _LAMBDA, "anml.sigma=0.0..0.1"),
    "improved_n_pair": ("anml.gamma=1.0..4.0:log", "anml.offset=0.0..1.0"),
    "improved_proxy_nca": ("anml.proxy_gamma=4.0..16.0:log", "anml.offset=0.0..1.0"),
}
_HDML = "hdml.alpha=0.1..1.0:log"  # λ of about 0.7 to 0.05 once the loss has fallen to a third
_ALA = "assessing.rate=1e-4..4e-3:log"
_HTL = "tree.beta=0.03..0.3:log"
_OWN_OF_METHOD = {
    "hdml": (_HDML,),
    "ala": (_ALA,),
    "mlp": (_ALA,),
    "hdml_ala": (_HDML, _ALA),
    "expansion": ("method.points=1,2,4",),
    "htl": (_HTL,),
    "htl_margin": (_HTL,),
    "htl_hdml": (_HTL, _HDML),
}


def space_of(row: Row) -> Space:
    """The settings that are searched for a row, each with its range; of a recipe without a ``method`` what it shows."""
    kind = find_recipe(row.recipe)
    recipe, words = apply(kind, row.overrides), list[str]()
    contender = getattr(recipe, "method", None)
    if isinstance(contender, Contender):
        words += [*_OF_LOSS.get(contender.loss, ()), *_OWN_OF_LOSS.get(contender.loss, ())]
        words += _OWN_OF_METHOD.get(contender.name, ())
    elif hasattr(recipe, "margin"):
        words.append(f"margin={recipe.margin / 2}..{recipe.margin * 2}:log")
    set_by_row = {word.partition("=")[0] for word in row.overrides}
    found, _ = parse([word for word in words if word.partition("=")[0] not in set_by_row])
    return {**_common(kind, row, recipe), **found}


def _common(kind: type[Recipe], row: Row, recipe: Recipe) -> dict[str, Range | Choice]:
    """Rate and steps: about the recipe's own rate, the same for all rows of it, and half to twice the row's epochs."""
    epochs = sorted({max(1, recipe.epochs // 2), recipe.epochs, 2 * recipe.epochs})
    found: dict[str, Range | Choice] = {STEPS: Choice(tuple(map(str, epochs)))}
    data = [word for word in row.overrides if word.startswith("data=")]  # a recipe may have none of its own
    optimisation = getattr(apply(kind, data), "optimisation", None)
    if optimisation is not None:
        rate = optimisation.learning_rate
        found[RATE] = Range(rate / DECADES, rate * DECADES, log=True)
    return found
