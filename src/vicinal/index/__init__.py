"""Nearest neighbours: who is close to whom, before anyone asks whether that is right."""

from vicinal.index.exact import Metric, Neighbours, neighbour_chunks, neighbours, require_finite

__all__ = ["Metric", "Neighbours", "neighbour_chunks", "neighbours", "require_finite"]
