"""The package's names for our losses: the same arguments, defaults, values and gradients as its own."""

import inspect

import pytest
import torch

from vicinal.compat import pml_losses

peers = pytest.importorskip("pytorch_metric_learning.losses")
NAMES = [
    name
    for name, each in vars(pml_losses).items()
    if inspect.isfunction(each) and inspect.unwrap(each).__module__ == pml_losses.__name__
]


@pytest.mark.parametrize("name", NAMES)
def test_equals_the_packages_own(name, rng):
    embeddings = torch.randn(16, 8, generator=rng, dtype=torch.float64).requires_grad_()
    labels = torch.arange(16) // 4
    make, own = getattr(pml_losses, name), getattr(peers, name)
    sizes = {"num_classes": 4, "embedding_size": 8} if "num_classes" in inspect.signature(make).parameters else {}
    ours, theirs = make(**sizes), own(**sizes)
    if sizes:
        theirs.W.data = ours.loss.proxies.detach().double().reshape(-1, 8).T.clone()
    values = ours(embeddings, labels), theirs(embeddings, labels)
    torch.testing.assert_close(values[0].float(), values[1].float(), rtol=1e-6, atol=1e-6)
    gradients = [torch.autograd.grad(value, embeddings)[0] for value in values]
    torch.testing.assert_close(*gradients, rtol=1e-6, atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_takes_the_packages_arguments_with_its_defaults(name):
    ours = inspect.signature(getattr(pml_losses, name)).parameters
    theirs = {}
    for kind in reversed(getattr(peers, name).__mro__):
        theirs |= dict(inspect.signature(kind.__init__).parameters)
    assert set(ours) <= set(theirs)
    for argument, parameter in ours.items():
        assert parameter.default == theirs[argument].default
