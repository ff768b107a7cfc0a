"""Descriptions rebuild what they describe, and nothing else."""

from dataclasses import dataclass

import pytest

from vicinal.arguments import build, describe
from vicinal.errors import ConfigError


@dataclass(frozen=True)
class Inner:
    sizes: tuple[int, ...] = (1, 2)


@dataclass(frozen=True)
class Outer:
    inner: Inner
    name: str = "x"
    share: float | None = None


ALLOWED = {"Inner": Inner, "Outer": Outer}


def test_nested_objects_round_trip():
    value = Outer(Inner((3, 4)), "y", 0.5)
    assert build(describe(value), ALLOWED) == value


@pytest.mark.parametrize(
    ("description", "message"),
    [
        ({"class": "os.system", "command": "true"}, "unknown class 'os.system'"),
        ({"class": "Inner", "size": 1}, "did you mean 'sizes'"),
        ({"sizes": 1}, "'class'"),
        ({"class": ["Inner"]}, "'class'"),
        ({"class": "Outer"}, "cannot be built"),
        ({"class": "Outer", "inner": {"class": "eval"}}, "unknown class 'eval'"),
    ],
)
def test_anything_else_is_refused(description, message):
    with pytest.raises(ConfigError, match=message):
        build(description, ALLOWED)


def test_an_object_that_forgets_its_arguments_is_refused():
    class Forgetful:
        def __init__(self, size: int) -> None:
            pass

    with pytest.raises(ConfigError, match="does not keep its argument 'size'"):
        describe(Forgetful(3))
