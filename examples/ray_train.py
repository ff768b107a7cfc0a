"""Train in workers of a Ray cluster: Ray Train starts them, joins them, and starts them again when
one is lost; they go on from the run's last checkpoint.

pip install 'vicinal[ray]' 'ray[train]'
python examples/ray_train.py
"""

import tempfile
from pathlib import Path
from typing import Any

import ray
from ray import train
from ray.train.torch import TorchConfig, TorchTrainer

import vicinal


def work(settings: dict[str, Any]) -> None:
    """Train in the process group that Ray has made; every worker calls this."""
    folder = Path(settings["run"])  # where the first worker sees it again
    if (folder / "run.json").is_file():
        vicinal.train(resume=folder, quiet=True)
    else:
        vicinal.train(**settings)


def fit(settings: dict[str, Any], workers: int, gpu: bool = False) -> train.Result:
    trainer = TorchTrainer(
        work,
        train_loop_config=settings,
        scaling_config=train.ScalingConfig(num_workers=workers, use_gpu=gpu),
        torch_config=TorchConfig("cpu:gloo,cuda:nccl" if gpu else "gloo"),
        run_config=train.RunConfig(
            storage_path=tempfile.mkdtemp(), failure_config=train.FailureConfig(max_failures=3)
        ),
    )
    return trainer.fit()


if __name__ == "__main__":
    run = Path(tempfile.mkdtemp(), "run")
    settings = {"data": "glyphs", "loss": "proxy_anchor", "run": str(run), "quiet": True}
    ray.init()
    fit({**settings, "training": {"epochs": 2}}, workers=2)
    print(f"vicinal report {run}")
