"""Recipes: Python files; the docstring holds command, cost and the number to expect. ``vicinal recipes`` lists them."""
