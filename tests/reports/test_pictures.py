"""Verdicts that also the colour-blind can read, and pairs that have a picture."""

import numpy as np
from matplotlib.collections import PatchCollection
from matplotlib.colors import to_hex
from matplotlib.path import Path

from vicinal.reports.artefacts import read_artefacts
from vicinal.reports.colours import INK, RIGHT, WRONG
from vicinal.reports.pictures import draw_confused, draw_retrieval


def has_colour(image: np.ndarray, colour: str) -> bool:
    wanted = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
    return bool((np.abs(image.astype(int) - wanted).max(axis=2) < 12).any())


def test_verdicts_differ_in_colour_line_and_sign(reported, pixels):
    artefacts = read_artefacts(reported.run)
    figure = draw_retrieval(artefacts.gallery, artefacts.thumbnails)
    frames = [c for c in figure.axes[0].collections if isinstance(c, PatchCollection)]
    dashes = {to_hex(frame.get_edgecolor()[0]): frame.get_linestyle()[0][1] is not None for frame in frames}
    assert dashes == {INK: False, RIGHT: False, WRONG: True}
    signs = [line.get_marker() for line in figure.axes[0].lines]
    assert len([sign for sign in signs if isinstance(sign, Path)]) == 2  # tick and cross
    image = pixels(figure)
    assert has_colour(image, RIGHT) and has_colour(image, WRONG)


def test_confused_pairs_without_an_example_have_no_figure(reported):
    artefacts = read_artefacts(reported.run)
    without = [type(pair)(pair.label, pair.taken_for, pair.share, pair.queries, None) for pair in artefacts.confused]
    assert draw_confused(without, artefacts.thumbnails) is None
