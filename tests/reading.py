"""One epoch of batches, how tests compare them, and pictures that cannot be read."""

import torch

from vicinal.data.loader import Loader


def load(records, plan, transform, *, seed, epoch, workers=0, skip_corrupt=False):
    loader = Loader(
        records,
        transform,
        seed=seed,
        workers=workers,
        corrupt="replace" if skip_corrupt else "raise",
    )
    return loader.batches(plan, epoch)


def same(ours, theirs, *, levels=0.0):
    """Equal batches; pixels may differ by so many of 255 levels, seldom."""
    ours = list(ours)
    theirs = list(theirs)
    assert len(ours) == len(theirs) > 0
    for one, other in zip(ours, theirs, strict=True):
        assert one.inputs.shape == other.inputs.shape and one.inputs.dtype == torch.float32
        difference = (one.inputs - other.inputs).abs()
        if difference.numel():
            assert difference.max() <= levels and difference.mean() <= levels / 10
        assert one.labels.equal(other.labels) and one.indices.equal(other.indices)
        assert one.skipped == other.skipped and one.extras.keys() == other.extras.keys()
        assert all(column.equal(other.extras[name]) for name, column in one.extras.items())


def broken(records, row):
    path = records.source.root / records.source.paths[row]
    path.write_bytes(path.read_bytes()[:100])
    return records.source.paths[row]
