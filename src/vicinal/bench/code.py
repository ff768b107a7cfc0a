"""What results depend on of the code: a hash of the package's files, the same in a copy without a repository."""

from functools import cache
from hashlib import sha256
from pathlib import Path

from vicinal.training.listing import packaged_recipes

_PACKAGE = Path(__file__).parents[1]
# No number of a run depends on these. Recipes count one by one, for a new one does not change the others.
_NO_MATTER = frozenset({"bench", "cli", "compat", "linear", "recipes", "reports", "search", "serve"})
# But for what the bench computes itself: rows without training, folds, and the protocols that put runs together.
_OF_BENCH = frozenset({"baselines.py", "by_class.py", "job.py", "measuring.py", "recuts.py"})


def fingerprint(recipe: str) -> str:
    """A short hash of the recipe's file and of all code that a run may execute.

    Documents, tests, reports and commands are not in it: a commit that touches them alone leaves results as they are.
    """
    own = packaged_recipes().get(recipe, Path(recipe))
    return sha256((_shared() + _of(own)).encode()).hexdigest()[:12]


@cache
def _shared() -> str:
    files = [path for path in sorted(_PACKAGE.rglob("*.py")) if _matters(path.relative_to(_PACKAGE))]
    return "".join(f"{path.relative_to(_PACKAGE)} {_of(path)}\n" for path in files)


def _matters(path: Path) -> bool:
    return path.parts[0] not in _NO_MATTER or (path.parts[0] == "bench" and path.name in _OF_BENCH)


def _of(path: Path) -> str:
    return sha256(path.read_bytes()).hexdigest()
