"""The HTTP API under load: search by item, by vector and by picture on an index of Stanford Online
Products' size.

    python benchmarks/search_http.py                 # prints the table; about 2 minutes on 2 cores
    python benchmarks/search_http.py --write         # and writes it into docs/benchmarks.md

``vicinal serve`` runs in a process of its own on the same cores as the clients. Eight clients, each
with one connection on loopback, send a bounded number of requests one after the other, each for 24
neighbors; a client sends the next request as soon as the last answer is read, so the rate is what
the server sustains. The first round warms up and is thrown away. Memory is the server's peak
resident set, file-backed pages of the vectors included, less the vectors.
"""

import argparse
import http.client
import io
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from measuring import ROOT, provenance, verdict, write_between

DOCUMENT = ROOT / "docs" / "benchmarks.md"
ROWS = 60_502  # Stanford Online Products' test part
DIM = 512
CLASSES = 11_316
CLIENTS = 8
K = 24
# The bars: requests/s, seconds, bytes above the vectors.
LEAST_RATE, MOST_P95, MOST_BYTES = (
    20.0,
    0.4,
    2**30,
)


def make(folder: Path) -> None:
    """A run whose model is a drawn EfficientNet-Lite0 with a head, and a collection of unit vectors
    around centers."""
    import numpy as np
    import torch

    from vicinal.data.transforms import ImageTransform
    from vicinal.evaluation.encoder import Encoder
    from vicinal.models.efficientnet_lite import EfficientNetLite
    from vicinal.models.embedder import Embedder
    from vicinal.retrieval.collection import publish
    from vicinal.retrieval.items import Item
    from vicinal.run_directory import RunDirectory

    torch.manual_seed(0)
    run = RunDirectory.create(folder)
    run.write_info(
        {"name": "load", "config": {"preset": "load", "title": "Load"}, "data": {"name": "drawn"}}
    )
    transform = ImageTransform(size=224, resize=256)
    encoder = Encoder(Embedder(EfficientNetLite(), DIM), transform, torch.device("cpu"))
    encoder.save_description(run)
    encoder.save_weights(run)
    labels = torch.arange(ROWS) % CLASSES
    rows = torch.randn(CLASSES, DIM)[labels] + 1.7 * torch.randn(ROWS, DIM)
    vectors = torch.nn.functional.normalize(rows, dim=1).numpy().astype(np.float32)
    items = [Item(i, f"{i % CLASSES}/{i}.jpg", str(i % CLASSES)) for i in range(ROWS)]
    publish(folder / "collection", items, vectors, dim=DIM)


def requests(kind: str, count: int) -> list[tuple[str, str, bytes | None, dict[str, str]]]:
    """Method, path, body and headers of each request; no two alike."""
    import numpy as np
    from PIL import Image

    rng = np.random.default_rng(1)
    if kind == "item":
        return [
            ("GET", f"/api/search/item/{id}?k={K}", None, {})
            for id in rng.integers(0, ROWS, count).tolist()
        ]
    if kind == "vector":
        rows = rng.normal(size=(count, DIM))
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        bodies = [json.dumps({"vector": row.round(6).tolist()}).encode() for row in rows]
        return [
            ("POST", f"/api/search/vector?k={K}", body, {"Content-Type": "application/json"})
            for body in bodies
        ]
    bodies = []
    for _ in range(count):
        coarse = Image.fromarray(rng.integers(0, 255, (12, 16, 3), dtype=np.uint8))
        file = io.BytesIO()
        coarse.resize((1024, 768), Image.Resampling.BICUBIC).save(file, "jpeg", quality=85)
        bodies.append(file.getvalue())
    return [("POST", f"/api/search/image?k={K}", body, {}) for body in bodies]


def load(port: int, asked: list) -> tuple[float, list[float], list[dict]]:
    """Seconds for all, seconds of each, and the answers, which must all be whole."""

    def client(part: list) -> list[tuple[float, dict]]:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        found = []
        for method, path, body, headers in part:
            start = time.perf_counter()
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            content = response.read()
            found.append((time.perf_counter() - start, content))
            if response.status != 200:
                raise SystemExit(f"{path} was answered {response.status}: {content[:200]!r}")
        connection.close()
        return found

    start = time.perf_counter()
    with ThreadPoolExecutor(CLIENTS) as pool:
        parts = list(pool.map(client, [asked[place::CLIENTS] for place in range(CLIENTS)]))
    whole = time.perf_counter() - start
    answers = [(seconds, json.loads(content)) for part in parts for seconds, content in part]
    if any(len(answer["matches"]) != K for _, answer in answers):
        raise SystemExit(f"an answer had not {K} matches")
    return whole, sorted(seconds for seconds, _ in answers), [answer for _, answer in answers]


def measure(port: int, kind: str, count: int) -> dict[str, float]:
    load(port, requests(kind, count)[: 2 * CLIENTS])
    whole, seconds, answers = load(port, requests(kind, count))
    row = {
        "count": count,
        "rate": count / whole,
        "median": statistics.median(seconds),
        "p95": seconds[int(0.95 * len(seconds))],
        "search": statistics.median(answer["search_seconds"] for answer in answers),
    }
    if kind == "image":
        row["embedding"] = statistics.median(answer["embedding_seconds"] for answer in answers)
    return row


def peak(process: int) -> int:
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


def table(found: dict[str, dict[str, float]], memory: int) -> str:
    lines = [
        "| search by | requests | requests/s | median | 95th percentile | of it searching | of it "
        "embedding | bar |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for kind, row in found.items():
        name = {"image": "picture"}.get(kind, kind)
        held = kind != "image"
        met = verdict(row["rate"] >= LEAST_RATE and row["p95"] < MOST_P95) if held else "reported"
        embedding = f"{1000 * row['embedding']:.0f} ms" if "embedding" in row else "-"
        lines.append(
            f"| {name} | {row['count']} | {row['rate']:.0f} | {1000 * row['median']:.0f} ms | "
            f"{1000 * row['p95']:.0f} ms | {1000 * row['search']:.0f} ms | {embedding} | {met} |"
        )
    above = memory - 4 * ROWS * DIM
    lines += [
        "",
        f"{ROWS:,} x {DIM} vectors ({4 * ROWS * DIM / 2**20:.0f} MiB), {CLIENTS} clients, k = "
        f"{K}. Bars: at least "
        f"{LEAST_RATE:.0f} requests/s with a 95th percentile under {1000 * MOST_P95:.0f} ms by "
        "item and by vector; the "
        f"server's peak resident set at most 1 GiB above the vectors: {above / 2**20:.0f} MiB "
        "above, "
        f"{verdict(above < MOST_BYTES)}. A picture is a JPEG of 1024 x 768, embedded by "
        "EfficientNet-Lite0.",
        "",
        provenance(("torch", "fastapi", "uvicorn")),
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--write", action="store_true", help="put the table into docs/benchmarks.md"
    )
    parser.add_argument(
        "--requests", type=int, default=800, help="by item and by vector; a tenth of it by picture"
    )
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        make(run)
        command = [
            sys.executable,
            "-m",
            "vicinal",
            "serve",
            str(run),
            "--port",
            "0",
            "--device",
            "cpu",
        ]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, env=dict(os.environ)
        ) as server:
            try:
                server.stdout.readline()
                port = int(server.stdout.readline().split()[2].rstrip("/").rsplit(":", 1)[1])
                counts = {
                    "item": chosen.requests,
                    "vector": chosen.requests,
                    "image": max(CLIENTS, chosen.requests // 10),
                }
                found = {kind: measure(port, kind, count) for kind, count in counts.items()}
                text = table(found, peak(server.pid))
            finally:
                server.send_signal(signal.SIGINT)
    print(text)
    if chosen.write:
        write_between(DOCUMENT, "http", text)


if __name__ == "__main__":
    main()
