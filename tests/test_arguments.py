"""Descriptions rebuild what they describe, and nothing else."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import pytest

from vicinal.arguments import Count, Limits, Settings, build, coerce, describe
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
def test_anything_else_is_rejected(description, message):
    with pytest.raises(ConfigError, match=message):
        build(description, ALLOWED)


def test_an_object_that_forgets_its_arguments_is_rejected():
    class Forgetful:
        def __init__(self, size: int) -> None:
            pass

    with pytest.raises(ConfigError, match="does not keep its argument 'size'"):
        describe(Forgetful(3))


@pytest.mark.parametrize(
    ("interval", "value", "message"),
    [
        ("[1, inf)", 0, "must be at least 1, got 0"),
        ("(0, inf)", 0.0, "must be above 0, got 0"),
        ("[0, 1)", 1.0, "must be at least 0 and below 1, got 1"),
        ("(0, 1]", 1.5, "must be above 0 and at most 1, got 1.5"),
    ],
)
def test_a_number_outside_its_limits_is_rejected_with_them(interval, value, message):
    with pytest.raises(ConfigError, match=message):
        coerce(value, Annotated[float, Limits(interval)], "loss.margin")


def test_settings_are_brought_to_their_annotations_in_python_too():
    class Group(Settings):
        slot: ClassVar[str] = "group"
        sizes: tuple[Count, ...]
        kind: Literal["a", "b"] | None = None

    assert Group([2, "3"]).sizes == (2, 3)
    for arguments, message in (
        ({"sizes": (1, 0)}, r"group\.sizes must be at least 1, got 0"),
        ({"sizes": (1,), "kind": "c"}, r"group\.kind: unknown value 'c'"),
        ({"sizes": (float("inf"),)}, r"group\.sizes is a whole number, got inf"),
    ):
        with pytest.raises(ConfigError, match=message):
            Group(**arguments)
