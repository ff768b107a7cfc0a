"""Damaged files, tables and runs, and random settings, are taken or rejected in our words."""

import contextlib
import io
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tests.pictures import claiming

pytestmark = [pytest.mark.slow(5), pytest.mark.filterwarnings("ignore")]

VALUES = (
    "inf -inf nan -1 0 1 2 0.5 -0.5 1e308 1e-320 18446744073709551616 -9223372036854775809 "
    "1000000000000 x true none [] {} [1,2] [inf] ' ../x \x00 é 1_0 0x10 ² --5"
)
NUMBERS = "0 1 2 0.5 1e-320 1e308 1000000000000 true false"  # are right more often


def test_images(attack, targets, tmp_path):
    """Of every format, damaged, or claiming extreme sizes: read and embedded."""
    from vicinal.retrieval.model import load

    model = load(targets.run, device="cpu")
    draw = attack.draw
    whole = []
    exif = Image.Exif()
    exif[0x0112] = 6  # turned
    for kind in ("jpeg", "png", "gif", "bmp", "webp", "tiff", "eps"):
        for mode in ("RGB", "L", "P", "CMYK", "RGBA", "I;16", "1"):
            file = io.BytesIO()
            gray = Image.fromarray(draw.integers(0, 256, (30, 40), dtype=np.uint8))
            with contextlib.suppress(OSError, ValueError):  # modes that a format does not know
                gray.convert(mode).save(file, kind, exif=exif)
                whole.append((kind, file.getvalue()))
    for number in attack.times(5_000):
        kind, data = whole[number % len(whole)]
        if number % 10:
            data = attack.bent(data, draw)
        else:
            sizes = [0, 1, 99, 20_000, 2**16, 2**31 - 1]
            kind = "png"
            width, height = draw.choice(sizes, 2).tolist()
            data = claiming(width, height, min((width + 1) * height, 2**22))
        path = tmp_path / f"image.{draw.choice([kind, 'png'])}"
        path.write_bytes(data)
        attack.attempt(kind, lambda path=path: model.embed([path]))


def test_tables(attack, targets, tmp_path):
    """Tables and array files, opened as data."""
    import pyarrow
    from pyarrow import csv, parquet

    from vicinal.data import open_path

    lines = ["path,label,split,camera"]
    for number, path in enumerate(sorted(targets.photos.rglob("*.png"))):
        split = "train" if number % 2 else "test"
        lines.append(f'"{path}",{path.parent.name},{split},{number % 3}')
    text = "\n".join(lines)
    arrays = dict(np.load(targets.vectors))
    columns = {"label": arrays["labels"], "features": list(arrays["features"])}
    writers = {
        "csv": lambda file: file.write(text.encode()),
        "tsv": lambda file: file.write(text.replace(",", "\t").encode()),
        "npz": lambda file: np.savez(file, **arrays),
        "compressed.npz": lambda file: np.savez_compressed(file, **arrays),
        "parquet": lambda file: parquet.write_table(csv.read_csv(io.BytesIO(text.encode())), file),
        "vectors.parquet": lambda file: parquet.write_table(pyarrow.table(columns), file),
    }
    whole = {}
    for kind, write in writers.items():
        file = io.BytesIO()
        write(file)
        whole[kind] = file.getvalue()
    for number in attack.times(2_000):
        kind = list(whole)[number % len(whole)]
        path = tmp_path / f"table.{kind}"
        path.write_bytes(attack.bent(whole[kind], attack.draw))
        attack.attempt(kind, lambda path=path: open_path(path).load())


def test_settings(attack, targets, tmp_path):
    """One or two random settings; what is accepted trains a step."""
    from vicinal.arguments import parameters
    from vicinal.config import REGISTRIES, Evaluation, Training
    from vicinal.methods.optimizer import OptimizerConfig
    from vicinal.models import ModelConfig

    draw = attack.draw
    folder = tmp_path / "run"
    slots = ("loss", "sampler", "method", "transform")
    kinds = [(slot, name, kind) for slot in slots for name, kind in REGISTRIES[slot].items()]
    single = {"model": ModelConfig, "optimizer": OptimizerConfig}
    single |= {"training": Training, "evaluation": Evaluation}
    kinds += [(slot, "", kind) for slot, kind in single.items()] * 8
    for _ in attack.times(1_000):
        slot, name, kind = kinds[int(draw.integers(len(kinds)))]
        words = [f"{slot}={name}"] if name else []
        for argument in draw.choice(
            list(parameters(kind)) or ["none"], int(draw.choice([1, 1, 2]))
        ):
            values = VALUES if draw.random() < 0.5 else NUMBERS
            words.append(f"{slot}.{argument}={draw.choice(values.split())}")
        own = tuple(word.partition("=")[0] + "=" for word in words)
        small = [word for word in attack.vectors if not word.startswith(own)]
        given = ("train", "--data", targets.vectors, "--run", folder, "-q", "--no-report")
        given = (*given, *small, *words)
        attack.attempt(" ".join(map(ascii, words)), lambda given=given: attack.command(*given))
        shutil.rmtree(folder, ignore_errors=True)


def damage(path, attack):
    draw = attack.draw
    data = path.read_bytes()
    ways = {
        "a pipe": os.mkfifo,
        "a folder": Path.mkdir,
        "a link": lambda path: path.symlink_to(attack.outside / "notes.txt"),
        "a loop": lambda path: path.symlink_to(path),
    }
    kind = int(draw.integers(10))
    if kind < len(ways):
        path.unlink()
        [*ways.values()][kind](path)
        return [*ways][kind]
    if kind < 7 and path.suffix == ".json":
        text = ["[" * 100_000, "[]", "{}", "null", "\xff"]
        value = json.loads(data)
        if isinstance(value, dict) and value:
            values = (None, -1, "x", [], {}, 1e300, "../..")
            value[str(draw.choice(list(value)))] = values[int(draw.integers(7))]
            text += [json.dumps(value)] * 5
        path.write_bytes(text[int(draw.integers(len(text)))].encode("latin-1"))
        return f"rewritten as {path.read_bytes()[:60]!r}"
    path.write_bytes(attack.bent(data, draw))
    return "bent"


def test_runs(attack, targets, kills, tmp_path):
    """One file of a run, finished or interrupted, and the commands that read it."""
    half = tmp_path / "half"
    target = tmp_path / "run"

    def train():
        words = ("--data", targets.photos, "--run", half, "-q", "--no-report", *attack.images)
        attack.done("train", *words)

    total = kills.run(half, train)
    shutil.rmtree(half)
    kills.run(half, train, at=int(total * 0.6))
    reading = (
        ("report", target),
        ("embed", target, targets.photos, "--out", tmp_path / "out.npz"),
        ("search", target, "--id", "0"),
        ("index", target, targets.photos),
    )
    resuming = (("train", "--resume", target, "-q", "--no-report"),)
    for number in attack.times(250):
        base = half if number % 3 == 0 else targets.run
        files = sorted(path.relative_to(base) for path in base.rglob("*") if path.is_file())
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(base, target)
        path = target / files[int(attack.draw.integers(len(files)))]
        label = f"{path.relative_to(target)} {damage(path, attack)}"
        for words in resuming if base is half else reading:
            said = f"{words[0]} after {label}"
            attack.attempt(said, lambda words=words: attack.command(*words))


OWN = (
    "archives/2019/a.txt generation-00000001/x journal.bin annotations.json current.json README.md "
    "model.onnx run.json report.html 00000.tar vectors.npy items.jsonl cache/x .mine.part"
)


def test_folders_of_a_users_own(attack, targets, tmp_path):
    """In the place of an output: rejected, or all that was in them is kept."""
    folder = tmp_path / "work" / "own"
    outputs = (
        ("index", targets.run, targets.photos, "--collection", folder),
        ("export", targets.run, "--no-onnx", "--to", folder),
        ("embed", targets.run, targets.photos, "--out", folder / "e.npz"),
        ("train", "--data", targets.vectors, "--run", folder, "-q", "--no-report", *attack.vectors),
    )
    for number in attack.times(1_500):
        shutil.rmtree(folder, ignore_errors=True)
        for name in attack.draw.choice(OWN.split(), int(attack.draw.integers(1, 4))):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text("mine")
        before = attack.content(folder)
        words = outputs[number % len(outputs)]
        label = f"{words[0]} into {[Path(path).name for path in before]}"
        attack.attempt(label, lambda words=words: attack.command(*words))
        assert before.items() <= attack.content(folder).items(), label
