"""Tests, as a package: modules of different parts may have the same name."""
