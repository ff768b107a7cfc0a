"""How long a command takes to its first step, how fast images are decoded, and how busy a GPU is
that reads from disk.

    python benchmarks/loading.py DATA                # a folder, table or shards; minutes on a GPU
    python benchmarks/loading.py DATA --preset cub   # other settings than `images`

- *First step*: the time from `vicinal train` until the first update is done, in a process of its
  own: with an empty folder for decoded images and features (``VICINAL_CACHE``), then twice with
  what the first left there. Of the last, what torch's own imports take is printed, too.
- *Decoding*: images/s into a tensor on the device, beside a torch ``DataLoader`` of 16 workers that
  prepares the same images, alternately.
- *Loading*: steps with images on the device; decoded on disk (``training.resident=disk``); and as
  image files, read by one worker for each processor. What the first take of the others' time is how
  busy the GPU is.
"""

import argparse
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch.utils.data import DataLoader, Dataset

from measuring import ROOT, commit, verdict

# processes that read import this file: what only the benchmark needs is imported where it is used
if TYPE_CHECKING:
    from vicinal.config import Config
    from vicinal.data.records import Records
    from vicinal.data.transforms import ImageTransform

FIRST_BAR = 10.0
BUSY_BAR = 0.9
WORKERS = 16
BATCH = 128
STARTED = "VICINAL_STARTED"  # when the command was given


def words(options: argparse.Namespace, *more: str) -> list[str]:
    return [f"data={options.data}", "method=plain", "training.validation=0", *options.set, *more]


def first_step(options: argparse.Namespace) -> list[str]:
    """Time the command without and with decoded images; the first line of numbers is the cold
    start."""
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        for name in ("empty cache", "cache", "cache again"):
            environment = os.environ | {
                "VICINAL_CACHE": f"{folder}/kept",
                STARTED: str(time.time()),
            }
            command = [sys.executable, __file__, *sys.argv[1:], "--child", f"{folder}/{name}"]
            said = subprocess.run(command, env=environment, capture_output=True, text=True)
            if said.returncode:
                raise SystemExit(said.stdout + said.stderr)
            lines.append(f"| command to first step, {name} | {said.stdout.splitlines()[-1]} |")
    code = "import torch; torch.cuda.is_available() and torch.zeros(1, device='cuda')"
    start = time.time()
    subprocess.run([sys.executable, "-c", code], check=True)
    return [*lines, f"| importing torch, and a GPU's context | {time.time() - start:.1f} s |"]


def child(options: argparse.Namespace) -> None:
    """Run the command in this process until its first update is done."""
    from vicinal.cli.main import run
    from vicinal.methods.method import Method

    step = Method.step
    start = float(os.environ[STARTED])

    def first(self: Method, batch: object) -> None:
        ready = time.time() - start
        step(self, batch)  # type: ignore[arg-type]
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        taken = time.time() - start
        sys.stdout.write(
            f"\n{taken:.1f} s, {ready:.1f} s to the first batch; bar 10: "
            f"{verdict(taken <= FIRST_BAR)}\n"
        )
        sys.stdout.flush()
        # Else they would wait for work, and keep the output open.
        for process in multiprocessing.active_children():
            process.kill()
        os._exit(0)

    Method.step = first  # type: ignore[method-assign,assignment]
    sys.argv = [
        "vicinal",
        "train",
        options.preset,
        *words(options),
        "--run",
        options.child,
        "--quiet",
    ]
    run()


class Prepared(Dataset):  # type: ignore[type-arg]
    """The images of records, prepared as for a tensor on a device."""

    def __init__(self, records: "Records", transform: "ImageTransform") -> None:
        self.records = records
        self.transform = transform

    def __len__(self) -> int:
        return len(self.records)

    def __getitem__(self, row: int) -> torch.Tensor:
        return self.transform.prepare(self.records.source.read(row))


def decoding(config: "Config", device: torch.device, rounds: int = 3) -> str:
    from vicinal.data.loader import keep_decoded
    from vicinal.data.transforms import ImageTransform
    from vicinal.training.experiment import load_records

    config, records = load_records(config)
    transform = config.transform
    assert isinstance(transform, ImageTransform)
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds):
        start = time.perf_counter()
        keep_decoded(records, transform, device)
        times[0].append(time.perf_counter() - start)
        start = time.perf_counter()
        for batch in DataLoader(Prepared(records, transform), BATCH, num_workers=WORKERS):
            batch.to(device)
        times[1].append(time.perf_counter() - start)
    ours, theirs = (len(records) / statistics.median(column) for column in times)
    return (
        f"| decoding {len(records):,} images | {ours:,.0f} images/s, DataLoader with 16 "
        f"workers {theirs:,.0f} |"
    )


def loading(options: argparse.Namespace, steps: int) -> str:
    sys.path.append(str(ROOT / "experiments"))
    from learning_curves import Run, milliseconds

    taken = {}
    with tempfile.TemporaryDirectory() as cache:
        for resident in ("auto", "disk", "off"):
            where = f"training.resident={resident}", f"training.cache={cache}"
            given = " ".join(words(options, *where, "training.compile=off"))
            taken[resident] = milliseconds(
                Run(resident, "", options.preset, given, steps=steps), options.data
            )
    lines = [f"| {steps} steps, images on the device | {taken['auto']:.1f} ms a step |"]
    for name, resident in (("decoded on disk", "disk"), ("image files", "off")):
        busy = taken["auto"] / taken[resident]
        said = f"{taken[resident]:.1f} ms: busy {busy:.0%}, bar 90 %: {verdict(busy >= BUSY_BAR)}"
        lines.append(f"| {steps} steps, {name} | {said} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path)
    parser.add_argument("--preset", default="images")
    parser.add_argument("--set", nargs="*", default=[], help="further settings slot.argument=value")
    parser.add_argument(
        "--steps", type=int, default=300, help="with images on the device, and from disk"
    )
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options)
        return
    from vicinal.config import compose, from_words

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    print("| | |\n|---|---|")
    print("\n".join(first_step(options)), flush=True)
    print(
        decoding(compose({"preset": options.preset}, from_words(words(options))), device),
        flush=True,
    )
    print(loading(options, options.steps), flush=True)
    name = torch.cuda.get_device_name() if device.type == "cuda" else "CPU"
    print(f"\n{name}, {os.cpu_count()} cores, torch {torch.__version__}, commit {commit()}")


if __name__ == "__main__":
    main()
