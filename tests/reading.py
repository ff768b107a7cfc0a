"""One epoch of batches, as tests compare them."""

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
