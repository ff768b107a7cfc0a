"""A method's own pictures as matplotlib figures."""

from matplotlib.figure import Figure

from vicinal.exhibits import Dendrogram, Scatter, Tuples
from vicinal.reports.colours import INK, LINES, PAPER, SOFT
from vicinal.reports.exhibits import SIGNS, TREE, Exhibition, place_dendrogram
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
        elif isinstance(exhibit, Dendrogram) and exhibit.leaves:
            figures[f"exhibit-{place}"] = _draw_dendrogram(exhibit, exhibition)
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


def _draw_dendrogram(tree: Dendrogram, exhibition: Exhibition) -> Figure:
    placed, thumbnails = place_dendrogram(tree), exhibition.thumbnails
    rows = len(placed.leaves)
    figure = Figure(figsize=(6.4, 0.16 * rows + 0.5), layout="constrained", facecolor=PAPER)
    axes = figure.add_subplot()
    axes.axis("off")
    axes.set_title(shorten(tree.title, 80), loc="left", fontsize=10, color=INK, fontweight="bold")
    for (x1, y1, x, y2, x2), _ in placed.brackets:
        axes.plot([x1, x, x, x2], [y1, y1, y2, y2], color=SOFT, linewidth=0.8)
    sheet = None if thumbnails is None else thumbnails.image()
    for row, leaf in enumerate(placed.leaves):
        tile = exhibition.records[leaf.record].tile
        if thumbnails is not None and sheet is not None and tile is not None:
            left, top = thumbnails.corner(tile)
            picture = sheet.crop((left, top, left + thumbnails.tile, top + thumbnails.tile))
            axes.imshow(picture, extent=(TREE + 4, TREE + 16, row + 0.95, row + 0.05), aspect="auto")
        axes.text(TREE + 20, row + 0.5, shorten(leaf.name, 32), color=INK, fontsize=6, va="center")
    axes.set(xlim=(0, 1.5 * TREE), ylim=(rows, 0))
    return figure
