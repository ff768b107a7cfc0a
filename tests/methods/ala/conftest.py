"""Fixtures of all tests of ALA."""

from tests.methods.ala.small import batch, sampler  # noqa: F401
