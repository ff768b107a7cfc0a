"""GoogLeNet against torchvision's."""

import pytest
import torch

from vicinal.models import GoogLeNet, load_weights


def test_size_and_features_are_those_of_torchvisions_module(filled, picture):
    """Features recorded from torchvision 0.29, with an odd side so that every pooling rounds up."""
    ours = filled(GoogLeNet())
    # 6,624,904 by torchvision's own account, less a classifier of 1,000 x (1,024 + 1)
    assert sum(p.numel() for p in ours.parameters()) == 6_624_904 - 1_025_000
    with torch.no_grad():
        maps = ours(picture(97))
    assert maps.shape == (1, ours.width, 3, 3)
    features = maps.mean(dim=(2, 3))[0]
    torch.testing.assert_close(features[:4], torch.tensor([2.1826, 8.5418, 9.6993, 34.727]), rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(features.norm(), torch.tensor(429.647), rtol=1e-3, atol=0)


@pytest.mark.parametrize("side", [64, 97])
def test_loads_torchvisions_weights_and_gives_its_features(side, filled, picture, torchvision_models):
    theirs = filled(torchvision_models.googlenet(weights=None, init_weights=False, transform_input=False))
    ours = GoogLeNet().eval()
    report = load_weights(ours, theirs.state_dict(), ignore=ours.classifiers)
    assert not report.missing and not report.unexpected
    assert {name.split(".")[0] for name in report.ignored} == {"aux1", "aux2", "fc"}
    with torch.no_grad():
        torch.testing.assert_close(theirs.fc(ours(picture(side)).mean(dim=(2, 3))), theirs(picture(side)))


def test_torchvisions_own_mapping_of_inputs_equals_our_preprocessing(torchvision_models, rng):
    """Its pre-trained module is given ImageNet's normalisation and undoes it (``transform_input``)."""
    from vicinal.models.preprocessing import IMAGENET

    theirs = torchvision_models.googlenet(weights=None, init_weights=False, transform_input=True)
    pixels = torch.rand(1, 3, 4, 4, generator=rng)
    torch.testing.assert_close(theirs._transform_input(IMAGENET(pixels)), GoogLeNet.preprocessing(pixels))
