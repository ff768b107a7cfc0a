"""Colors of pages and figures, distinct without red and green."""

import math

INK = "#1d2127"
SOFT = "#5b6470"
RULE = "#e3e4e0"
PAPER = "#ffffff"

# Okabe and Ito, "Color universal design" (2008), yellow (too pale on white) replaced by a violet.
LINES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#6a51a3", "#6b7280")

_GOLDEN_ANGLE = 137.50776  # degrees; successive multiples never come close to one another


def class_colors(count: int) -> list[str]:
    """One color per class: the palette while it lasts, then hues that stay as far apart as many
    hues can.

    >>> class_colors(2), len(set(class_colors(200)))
    (['#0072b2', '#d55e00'], 200)
    """
    if count <= len(LINES):
        return list(LINES[:count])
    lightness = (0.62, 0.73, 0.53)
    return [_hex(lightness[i % 3], 0.13, i * _GOLDEN_ANGLE) for i in range(count)]


def _hex(lightness: float, chroma: float, hue: float) -> str:
    """OKLCH to sRGB (Ottosson, "A perceptual color space for image processing", 2020): equal steps
    look equal."""
    a = chroma * math.cos(math.radians(hue))
    b = chroma * math.sin(math.radians(hue))
    long = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3
    medium = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3
    short = (lightness - 0.0894841775 * a - 1.2914855480 * b) ** 3
    linear = (
        4.0767416621 * long - 3.3077115913 * medium + 0.2309699292 * short,
        -1.2684380046 * long + 2.6097574011 * medium - 0.3413193965 * short,
        -0.0041960863 * long - 0.7034186147 * medium + 1.7076147010 * short,
    )
    return "#" + "".join(
        f"{round(255 * _gamma(min(max(value, 0.0), 1.0))):02x}" for value in linear
    )


def _gamma(value: float) -> float:
    # IEC 61966-2-1.
    return 12.92 * value if value <= 0.0031308 else 1.055 * value ** (1 / 2.4) - 0.055
