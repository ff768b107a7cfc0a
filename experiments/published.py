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
_HUNDRED = "nmi f1 recall@1 recall@10 recall@100"
_TO_32 = "recall@1 recall@2 recall@4 recall@8 recall@16 recall@32"
_TO_50 = "recall@1 recall@10 recall@20 recall@30 recall@40 recall@50"
_TO_1000 = "recall@1 recall@10 recall@100 recall@1000"

# Zheng et al., CVPR 2019, Tables 1 to 3, but for lifted structure: our row is its smooth form.
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
    "cars": printed(
        _EIGHT,
        """
        contrastive: 42.3 10.5 27.6 38.3 51.0 63.9
        triplet: 52.9 17.9 45.1 57.4 69.7 79.2
        semi-hard triplet: 55.7 22.4 53.2 65.4 74.3 83.6
        HDML (triplet): 59.4 27.2 61.0 72.6 80.7 88.5
        N-pair: 62.7 31.8 68.9 78.9 85.8 90.9
        HDML (N-pair): 69.7 41.6 79.1 87.1 92.1 95.5
        """,
    ),
    "sop": printed(
        _HUNDRED,
        """
        contrastive: 82.4 10.1 37.5 53.9 71.0
        triplet: 86.3 20.2 53.9 72.1 85.7
        semi-hard triplet: 86.7 22.1 57.8 75.3 88.1
        HDML (triplet): 87.2 22.5 58.5 75.5 88.3
        N-pair: 87.9 27.1 66.4 82.9 92.1
        HDML (N-pair): 89.3 32.2 68.7 83.2 92.4
        """,
    ),
}

# Zheng, Lu and Zhou, CVPR 2020: CUB from Tables 1, 2 (training), 3 and 6, Cars196 from 4 and 7, SOP
# from 5 and 8.
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
    "cars": printed(
        _EIGHT,
        """
        semi-hard triplet: 55.7 22.4 53.2 65.4 74.3 83.6
        triplet + HDML: 59.4 27.2 61.0 72.6 80.7 88.5
        contrastive: 42.3 10.5 27.6 38.3 51.0 63.9
        contrastive + ALA: 43.7 12.5 36.3 48.2 60.1 73.2
        triplet: 52.9 17.9 45.1 57.4 69.7 79.2
        triplet + ALA: 61.7 29.6 67.2 78.4 86.6 92.0
        margin: 59.7 28.1 71.5 79.3 87.8 91.6
        margin + ALA: 68.5 38.4 80.5 87.9 92.8 95.9
        """,
    ),
    "sop": printed(
        _HUNDRED,
        """
        semi-hard triplet: 86.7 22.1 57.8 75.3 88.1
        triplet + HDML: 87.2 22.5 58.5 75.5 88.3
        contrastive: 82.4 10.1 37.5 53.9 71.0
        contrastive + ALA: 84.3 12.5 42.9 58.5 74.1
        triplet: 86.3 20.2 53.9 72.1 85.7
        triplet + ALA: 89.7 35.4 68.6 83.1 91.9
        margin: 87.3 26.7 65.5 80.7 90.9
        margin + ALA: 91.0 39.3 77.0 89.4 96.1
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

# Song et al., TPAMI 2022: Table 3 for the losses that it improves, Tables 4 to 6 for the rest. Of
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
    "cars": printed(
        _TO_32,
        """
        Proxy-NCA: 73.2 82.4 86.4 87.8 - -
        circle: 83.4 89.8 94.1 96.5 - -
        multi-similarity: 84.1 90.4 94.0 96.5 98.0 98.9
        DANML: 85.6 92.1 94.1 97.7 98.1 99.3
        """,
    ),
    "inshop": printed(
        _TO_50,
        """
        multi-similarity: 89.7 97.9 98.5 98.8 99.1 99.2
        DANML: 90.1 98.2 98.9 99.0 99.3 99.4
        """,
    ),
    "sop": printed(
        _TO_1000,
        """
        Proxy-NCA: 73.7 - - -
        circle: 78.3 90.5 96.1 98.6
        multi-similarity: 78.2 90.5 96.0 98.7
        DANML: 79.9 92.1 96.4 98.9
        """,
    ),
}
# HTL as Song et al. 2022 quote it, Tables 4 to 6; the survey prints none for LoOp.
HTL: ByData = {
    "cub": printed(_TO_32, "HTL: 57.1 68.8 78.7 86.5 92.5 95.5"),
    "cars": printed(_TO_32, "HTL: 81.4 88.0 92.7 95.7 97.4 99.0"),
    "inshop": printed(_TO_50, "HTL: 80.9 94.3 95.8 97.2 97.4 97.8"),
    "sop": printed(_TO_1000, "HTL: 74.8 88.3 94.8 98.4"),
}
