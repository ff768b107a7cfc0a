"""A method's own pictures as matplotlib figures."""

from matplotlib.figure import Figure

from vicinal.exhibits import Scatter, Tuples
from vicinal.reports.colours import INK, LINES, PAPER, SOFT
from vicinal.reports.exhibits import SIGNS, Exhibition
from vicinal.reports.lettering import shorten
from vicinal.reports.pictures import Board

_MARKERS = dict(zip(SIGNS, ("o", "s", "D", "^", "X"), strict=True))
_ROWS = 12  # tuples that a printed page holds


def draw_exhibits(exhibition: Exhibition) -> dict[str, Figure]:
    """One figure for each exhibit that can be drawn, by the name of its file."""
    figures: dict[str, Figure] = {}
    for place, exhibit in enumerate(exhibition.exhibits, 1):
        if isinstance(exhibit, Scatter) and exhibit.points:
            figures[f"exhibit-{place}"] = _draw_scatter(exhibit)
        elif isinstance(exhibit, Tuples) and exhibition.thumbnails and exhibit.tuples:
            figures[f"exhibit-{place}"] = _draw_tuples(exhibit, exhibition)
    return figures


def _draw_scatter(scatter: Scatter) -> Figure:
    figure = Figure(figsize=(6.4, 4.4), layout="constrained", facecolor=PAPER)
    axes = figure.add_subplot(aspect="equal")
    axes.axis("off")
    axes.set_title(scatter.title, loc="left", fontsize=10, color=INK, fontweight="bold")
    for segment in scatter.segments:
        start, end = scatter.points[segment.start], scatter.points[segment.end]
        arrow = {"arrowstyle": "-|>", "color": SOFT, "linewidth": 0.7, "shrinkA": 3, "shrinkB": 3}
        axes.annotate("", (end.x, end.y), (start.x, start.y), arrowprops=arrow)
    groups = list(dict.fromkeys(point.group for point in scatter.points))
    for place, group in enumerate(groups):
        points = [point for point in scatter.points if point.group == group]
        axes.scatter(
            [point.x for point in points],
            [point.y for point in points],
            s=34,
            color=LINES[place % len(LINES)],
            marker=_MARKERS[SIGNS[place % len(SIGNS)]],
            linewidths=0,
            label=f" {group}",  # matplotlib would drop a label that starts with an underscore
            zorder=3,
        )
    axes.legend(fontsize=7.5, frameon=False, labelcolor=INK, loc="best")
    axes.margins(0.08)
    return figure


def _draw_tuples(tuples: Tuples, exhibition: Exhibition) -> Figure:
    shown = tuples.tuples[:_ROWS]
    members = max((len(each.members) for each in shown), default=0)
    if exhibition.thumbnails is None:
        raise ValueError("tuples are drawn from thumbnails")
    board = Board(max(members, 1) * 1.2 + 8, 1.5 * len(shown) + 0.6, exhibition.thumbnails)
    board.write(shorten(tuples.title, 80), 0.1, 0.3, colour=INK, size=9)
    for row, each in enumerate(shown):
        y = 0.6 + 1.5 * row
        for column, member in enumerate(each.members):
            board.put(exhibition.records[member.record], 1.2 * column, y)
            board.write(shorten(member.role, 14), 1.2 * column + 0.5, y + 1.2, size=6, align="center")
        board.write(shorten(each.caption, 60), 1.2 * members + 0.2, y + 0.5, colour=INK)
    return board.finished()
