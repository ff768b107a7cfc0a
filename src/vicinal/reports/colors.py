"""Colors of pages and figures, distinct without red and green."""

from colorsys import hls_to_rgb

INK = "#1d2127"
SOFT = "#5b6470"
RULE = "#e3e4e0"
PAPER = "#ffffff"

# Okabe and Ito, "Color universal design" (2008), yellow (too pale on white) replaced by a violet.
LINES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#6a51a3", "#6b7280")


def class_colors(count: int) -> list[str]:
    """One color per class: the palette while it lasts, then hues that stay as far apart as many
    hues can.

    >>> class_colors(2), len(set(class_colors(200)))
    (['#0072b2', '#d55e00'], 200)
    """
    if count <= len(LINES):
        return list(LINES[:count])
    # Successive multiples of the golden angle never come close to one another.
    hues = [(0.381966 * i % 1, (0.45, 0.6, 0.35)[i % 3], 0.6) for i in range(count)]
    colors = (hls_to_rgb(*hue) for hue in hues)
    return ["#" + "".join(f"{round(255 * part):02x}" for part in color) for color in colors]
