"""Benches: tables of rows and seeds, run by one command, compared with intervals; tuning on the training classes.

Where to look: which tables there are, ``catalogue`` (rows in ``papers``, ``hard_exemplars``, ``hardness`` over
``grounds``; printed numbers in ``published``); how one is run, ``run``, ``pool``, ``job`` and what a job writes down,
``measuring`` and ``results``; how it is read, ``summary``, ``statistics``, ``best`` and ``findings``; how it is shown,
``page``, ``excerpt``, ``figures``; how rows are tuned, ``table_tuning`` over ``ranges``, and a recipe, ``tuning``.
ANML's Table 2, whose rows are estimators and no recipes, has its own: ``linear_plan`` and the other ``linear_*``.
"""
