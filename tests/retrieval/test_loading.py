"""What a search loads: the network and the collection, none of what trained the network."""

import subprocess
import sys

from vicinal.retrieval.indexing import index

MOST = 60  # modules of vicinal
CODE = """
import sys
from vicinal.cli.main import run
try: run()
except SystemExit as end: assert not end.code, end.code
assert "torch._dynamo" not in sys.modules, "the compiler takes two seconds to import"
print("loaded", *[name for name in sys.modules if name.split(".")[0] == "vicinal"], file=sys.stderr)
"""


def test_a_search_by_picture_loads_neither_losses_nor_training(image_run, photographs, listener):
    index(image_run, [str(photographs)], console=listener)
    words = ["search", str(image_run.path), str(photographs / "a" / "00.png"), "--k", "2"]
    done = subprocess.run([sys.executable, "-c", CODE, *words], capture_output=True, text=True)
    assert done.returncode == 0 and "a/00.png" in done.stdout, done.stderr
    loaded = done.stderr.split("loaded ")[1].split()
    assert len(loaded) <= MOST, f"{len(loaded)} modules"
    trained_by = {"losses", "miners", "samplers", "methods", "training", "config", "bench"}
    assert not {name.split(".")[1] for name in loaded if "." in name} & trained_by
