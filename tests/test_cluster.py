"""Two hosts on one machine: network namespaces with disks of their own, joined by a cable. What
torchrun does across them is what one process does, also where a host dies."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from safetensors.numpy import load_file

from vicinal.evaluation.embedding import records_at
from vicinal.evaluation.encoder import Encoder
from vicinal.run_directory import RunDirectory

SRC = Path(__file__).parents[1] / "src"
ALONE = 'mount --bind "$0" /srv && mount --bind /srv/tmp /tmp && mount -t tmpfs none /dev/shm'
TRAIN = "train --data pictures --run run --quiet --no-report model=small model.widths=8,16 "
TRAIN += "training.device=cpu training.epochs=10 training.checkpoint_seconds=0 transform.size=16 "
TRAIN += "evaluation.artifacts=false "
TRAIN = [*TRAIN.split(), "training.batch_size=16"]


def ip(*words):
    return subprocess.run(["ip", *words], capture_output=True, text=True, check=True).stdout


def why_not():
    """Why there can be no namespaces here; nothing where there can."""
    if shutil.which("ip") is None:
        return "needs `ip` (apt-get install iproute2)"
    name = f"try{os.getpid()}"
    try:
        ip("netns", "add", name)
        try:
            ip("netns", "exec", name, "sh", "-c", "mount -t tmpfs none /dev/shm")
        finally:
            ip("netns", "del", name)
    except subprocess.CalledProcessError as error:
        return f"network namespaces are not permitted: {error.stderr.strip()}"
    return ""


pytestmark = pytest.mark.slow(60)


class Host:
    """A namespace in which ``/srv``, ``/tmp`` and shared memory are the host's own."""

    def __init__(self, number, folder):
        self.name = f"v{os.getpid()}-{number}"
        self.address = f"10.77.0.{number}"
        self.folder = folder
        self.started = []
        (folder / "tmp").mkdir(parents=True)
        ip("netns", "add", self.name)

    def start(self, *words, **variables):
        said = (self.folder / "said").open("w")
        output = (self.folder / "output").open("a")
        settings = {
            **os.environ,
            "PYTHONPATH": str(SRC),
            "GLOO_SOCKET_IFNAME": "eth0",
            "TP_SOCKET_IFNAME": "eth0",
            "OMP_NUM_THREADS": "1",
            **variables,
        }
        command = ["sh", "-c", f'{ALONE} && cd /srv && exec "$@"', self.folder, *words]
        words = ["ip", "netns", "exec", self.name, *command]
        with said, output:
            self.started.append(subprocess.Popen(words, stdout=said, stderr=output, env=settings))
        return self.started[-1]

    def said(self):
        """What the command that was started last has printed."""
        return (self.folder / "said").read_text()

    def die(self):
        """End all processes at once, as a power cut does."""
        for process in ip("netns", "pids", self.name).split():
            with suppress(ProcessLookupError):
                os.kill(int(process), signal.SIGKILL)
        for process in self.started:
            process.wait()


def finished(process, host):
    assert process.wait(600) == 0, (host.folder / "output").read_text()[-5000:]


@pytest.fixture
def hosts(tmp_path):
    if reason := why_not():
        pytest.skip(reason)
    made = []
    try:
        made += [Host(number, tmp_path / str(number)) for number in (1, 2)]
        cable = [f"v{os.getpid()}{end}" for end in "ab"]
        ip("link", "add", cable[0], "type", "veth", "peer", "name", cable[1])
        for host, end in zip(made, cable, strict=True):
            ip("link", "set", end, "netns", host.name, "name", "eth0")
            ip("-n", host.name, "addr", "add", f"{host.address}/24", "dev", "eth0")
            for device in ("lo", "eth0"):
                ip("-n", host.name, "link", "set", device, "up")
        rng = np.random.default_rng(0)
        for number in range(48):
            file = tmp_path / "pictures" / f"{number % 6}" / f"{number}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            shade = np.full((16, 16, 3), 40 * (number % 6))
            Image.fromarray((shade + rng.integers(0, 30, shade.shape)).astype(np.uint8)).save(file)
        for host in made:
            shutil.copytree(tmp_path / "pictures", host.folder / "pictures")
        yield made
    finally:
        for host in made:
            host.die()
            ip("netns", "del", host.name)


def torchrun(hosts, *words):
    """Start a command on all hosts."""
    shared = ["--nnodes", "2", "--nproc-per-node", "1", "--master-addr", hosts[0].address]
    start = [sys.executable, "-m", "torch.distributed.run", *shared]
    return [
        host.start(*start, "--node-rank", str(rank), "-m", "--", "vicinal", *words)
        for rank, host in enumerate(hosts)
    ]


def together(hosts, *words):
    for process, host in zip(torchrun(hosts, *words), hosts, strict=True):
        finished(process, host)


def until(happened, seconds=300):
    for _ in range(10 * seconds):
        if happened():
            return
        time.sleep(0.1)
    raise AssertionError("did not happen")


def test_training_resumes_after_a_host_died_and_evaluates_and_embeds_as_one_process(hosts):
    first, second = hosts
    run = first.folder / "run"
    together(hosts, *TRAIN)
    expected = load_file(run / "model.safetensors")
    run.rename(first.folder / "whole")
    running = torchrun(hosts, *TRAIN)
    until(lambda: [*run.glob("checkpoints/*")])
    second.die()
    for process in running:
        assert process.wait(120) != 0
    together(hosts, "train", "--resume", "run", "--quiet", "--no-report")
    resumed = load_file(run / "model.safetensors")
    assert all(np.array_equal(resumed[name], value) for name, value in expected.items())
    shutil.copytree(run, second.folder / "run")
    together(hosts, "evaluate", "run", "--json")
    scores = json.loads(first.said())
    together(hosts, "embed", "run", "pictures", "--out", "vectors.npz")
    finished(first.start(sys.executable, "-m", "vicinal", "evaluate", "run", "--json"), first)
    assert scores == json.loads(first.said())
    opened = RunDirectory.open(run)
    vectors = np.load(first.folder / "vectors.npz")["embeddings"]
    expected = Encoder.load(opened).embed(records_at(str(first.folder / "pictures"), opened))
    assert np.allclose(vectors, expected.vectors, atol=1e-6)
