"""Texts beside pictures on classes never seen: captions of CUB's class names and of Omniglot's
alphabets.

``python experiments/text.py run FOLDER`` makes the tables, trains every row with three seeds and
writes ``results/text.jsonl``; ``python experiments/text.py table`` prints the tables of ``text.md``
from it.
"""

import json
import math
import sys
from pathlib import Path

import numpy as np

import vicinal
from vicinal.data import CUB, Omniglot
from vicinal.data.folder import data_root

RESULTS = Path(__file__).parent / "results" / "text.jsonl"
SEEDS = (0, 1, 2)
DRAWERS = 8  # of each character
CUB_WORDS = {"training": {"steps": 200, "batch_size": 128}}
PICTURES = {
    "model": {"name": "small", "widths": (16, 32, 64, 128), "dim": 64, "weights": "none"},
    "transform": {
        "size": 28,
        "resize": None,
        "pad": 2,
        "fill": 255,
        "crop": "random",
        "mirror": False,
        "channels": 1,
    },
    "training": {"steps": 400, "validation": 0.0, "batch_size": 128, "workers": 0},
}
# Title, table, and the settings of a row beside those of its data.
ROWS = [
    *(
        (f"{data}: {text}, {loss}", data, {"model": {"text": text}, "loss": loss})
        for data, several in (
            ("cub", True),
            ("cub_random", False),
            ("letters", True),
            ("alphabets", False),
        )
        for text in ("ngrams", "minilm")
        for loss in ("info_nce", "sigmoid")
        if several or loss == "info_nce"
        if data != "letters" or text == "ngrams"
    )
]


def make_tables(folder: Path) -> None:
    """Write features of CUB with a caption each, and tables of drawings with the names of their
    alphabets."""
    folder.mkdir(parents=True, exist_ok=True)
    with np.load(data_root() / "features" / "cub_efficientnet_lite0.npz") as arrays:
        features = arrays["features"]
        labels = arrays["labels"].astype(np.int64)
    names = [name.partition(".")[2].replace("_", " ") for name in CUB().load().classes]
    texts = np.array([f"a photo of a {names[label - 1]}, a bird" for label in labels])
    np.savez(folder / "cub.npz", features=features, labels=labels, texts=texts)
    drawn = Omniglot(size=28).load()
    tables: dict[str, list[str]] = {
        name: ["path,text,label,split"] for name in ("letters", "alphabets")
    }
    for row in np.flatnonzero(drawn.columns["drawer"] <= DRAWERS):
        character = drawn.classes[drawn.labels[row]]
        alphabet = character.partition("/")[0].replace("_", " ")
        path = Path("drawings", f"{character.replace('/', '-')}-{drawn.columns['drawer'][row]}.png")
        (folder / path).parent.mkdir(exist_ok=True)
        drawn.source.read(int(row)).save(folder / path)
        # Every third character of each alphabet.
        held = "test" if int(character[-2:]) % 3 == 0 else "train"
        for name, split in (("letters", held), ("alphabets", drawn.splits[row])):
            tables[name].append(
                f'{path},a letter of the {alphabet.replace(",", "")} script,"{alphabet}",{split}'
            )
    for name, lines in tables.items():
        (folder / f"{name}.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")


def run(folder: Path) -> None:
    if not (folder / "alphabets.csv").is_file():
        make_tables(folder)
    done = {(line["row"], line["seed"]) for line in read()}
    for seed in SEEDS:
        for title, data, changes in ROWS:
            if (title, seed) in done:
                continue
            base = CUB_WORDS if data.startswith("cub") else PICTURES
            slots = {**base, **changes, "model": {**base.get("model", {}), **changes["model"]}}
            slots["training"] = {**base["training"], "seed": seed}
            source: object = str(folder / f"{data}.csv")
            if data.startswith("cub"):
                source = {
                    "name": str(folder / "cub.npz"),
                    "order": "random" if "random" in data else "sorted",
                }
            slots["evaluation"] = {"recalls": (1, 5), "restarts": 1}
            found = vicinal.train(
                source, run=folder / f"{title.replace(' ', '_')}-{seed}", quiet=True, **slots
            )
            sizes = np.unique(_gallery(found), return_counts=True)[1].tolist()
            line = {
                "row": title,
                "seed": seed,
                "classes": len(sizes),
                "chance": chance(sizes),
                **found.results,
            }
            with RESULTS.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
            print(
                title,
                seed,
                {k: round(v, 3) for k, v in found.results["trained"].items()},
                flush=True,
            )


def _gallery(run: vicinal.Run) -> np.ndarray:
    """Return the classes of the test pictures."""
    from vicinal.data import own_data

    part = own_data(run.directory)[1].part("test")
    return part.labels[part.columns["role"] == 2]


def chance(sizes: list[int]) -> dict[str, float]:
    """Return the mean recall of random rankings: a text has as many answers as its class has
    pictures."""
    total = sum(sizes)
    classes = len(sizes)
    back = {f"image_to_text_recall@{k}": min(1.0, k / classes) for k in (1, 5)}
    asked = {k: [1 - math.comb(total - n, k) / math.comb(total, k) for n in sizes] for k in (1, 5)}
    return back | {f"recall@{k}": sum(found) / classes for k, found in asked.items()}


def read() -> list[dict]:
    return (
        [json.loads(line) for line in RESULTS.read_text().splitlines()] if RESULTS.is_file() else []
    )


def table() -> None:
    names = ("recall@1", "recall@5", "map@r", "image_to_text_recall@1", "image_to_text_recall@5")
    lines = read()
    for title in dict.fromkeys(line["row"] for line in lines):
        runs = [line for line in lines if line["row"] == title]
        for kind in ("chance", "trained"):
            cells = []
            for name in names:
                values = [100 * line[kind][name] for line in runs if name in line[kind]]
                spread = (
                    f" ± {np.std(values, ddof=1):.1f}"
                    if kind != "chance" and len(values) > 1
                    else ""
                )
                cells.append(f"{np.mean(values):.1f}{spread}" if values else "")
            print(f"| {title} | {kind} | {' | '.join(cells)} |")


if __name__ == "__main__":
    if sys.argv[1] == "run":
        run(Path(sys.argv[2]))
    else:
        table()
