"""Numbers as the papers print them, for the rows that repeat their experiments."""

from collections.abc import Callable, Mapping

Scores = Mapping[str, float]
ByData = Mapping[str, Mapping[str, Scores]]


def printed(columns: str, text: str) -> dict[str, Scores]:
    """Lines ``name: numbers`` under the names of their columns, in per cent; ``-`` is not printed
    in the paper.

    >>> printed("nmi recall@1", "Triplet: 49.8 35.9\\nClustering: 59.2 -")
    {'Triplet': {'nmi': 0.498, 'recall@1': 0.359}, 'Clustering': {'nmi': 0.592}}
    """
    names = columns.split()
    found = dict[str, Scores]()
    for line in text.strip().splitlines():
        row, _, numbers = line.strip().partition(": ")
        printed = zip(names, numbers.split(), strict=True)
        found[row] = {
            name: round(float(number) / 100, 4) for name, number in printed if number != "-"
        }
    return found


def renamed(tables: ByData, name: Callable[[str], str]) -> dict[str, dict[str, Scores]]:
    """The same numbers for rows of other names."""
    return {
        data: {name(row): scores for row, scores in rows.items()} for data, rows in tables.items()
    }


_EIGHT = "nmi f1 recall@1 recall@2 recall@4 recall@8"
_TO_32 = "recall@1 recall@2 recall@4 recall@8 recall@16 recall@32"

# Zheng et al., CVPR 2019, Table 1, but for lifted structure: our row is its smooth form.
HDML: ByData = {
    "cub": printed(
        _EIGHT,
        """
        contrastive: 47.2 12.5 27.2 36.3 49.8 62.1
        triplet: 49.8 15.0 35.9 47.7 59.1 70.0
        semi-hard triplet: 53.4 17.9 40.6 52.3 64.2 75.0
        HDML (triplet): 55.1 21.9 43.6 55.8 67.7 78.3
        N-pair: 60.2 28.2 51.9 64.3 74.9 83.2
        HDML (N-pair): 62.6 31.6 53.7 65.7 76.7 85.7
        """,
    ),
}

# Zheng, Lu and Zhou, CVPR 2020: Tables 1, 2 (training), 3 and 6.
ALA: ByData = {
    "cub": printed(
        _EIGHT,
        """
        random triplet: 48.3 14.5 34.7 47.0 58.3 -
        random triplet + ALA: 56.6 25.5 44.4 58.4 70.9 -
        semi-hard triplet: 53.4 17.9 40.6 52.3 64.2 75.0
        triplet + HDML: 55.1 21.9 43.6 55.8 67.7 78.3
        contrastive: 47.2 12.5 27.2 36.3 49.8 62.1
        contrastive + ALA: 50.6 19.3 37.3 46.5 58.2 74.0
        triplet: 49.8 15.0 35.9 47.7 59.1 70.0
        triplet + ALA: 58.7 26.3 46.3 60.1 72.4 82.6
        margin: 58.7 26.6 49.6 62.7 74.1 82.9
        margin + ALA: 66.3 35.1 61.6 73.9 83.1 89.7
        """,
    ),
}
_TRAINING = """
triplet: 76.5 53.0 65.2 72.5 79.9
triplet + ALA: 79.3 56.1 66.5 74.3 81.0
"""
ALA_TRAINING = {  # Table 2
    name: {f"train {metric}": value for metric, value in scores.items()}
    for name, scores in printed("nmi f1 recall@1 recall@2 recall@4", _TRAINING).items()
}

# Song et al., TPAMI 2022: Table 3 for the losses that it improves, Table 4 for the rest. Of
# DANML on CUB the two tables print different numbers from R@4 on (Table 3: 88.2, 93.4); Table 4's
# are here.
ANML: ByData = {
    "cub": {
        **printed(
            "recall@1 recall@2 recall@4 recall@8",
            """
            lifted: 45.4 58.4 69.5 79.5
            improved lifted: 47.1 60.3 71.6 81.8
            Proxy-NCA: 49.2 61.9 67.9 72.4
            improved Proxy-NCA: 52.7 65.4 68.3 75.7
            N-pair: 43.6 56.6 68.6 79.6
            improved N-pair: 46.8 60.7 72.6 83.8
            DANML without λ: 65.4 76.8 85.7 90.7
            circle: 66.7 77.4 86.2 91.2
            """,
        ),
        **printed(
            _TO_32,
            """
            multi-similarity: 65.7 77.0 86.3 91.2 95.0 97.3
            DANML: 67.6 79.1 86.4 91.2 97.1 98.1
            """,
        ),
    },
}
# HTL as Song et al. 2022 quote it, Table 4; the survey prints none for LoOp.
HTL: ByData = {
    "cub": printed(_TO_32, "HTL: 57.1 68.8 78.7 86.5 92.5 95.5"),
}
