"""Two views of your own, from the ground and from the air: HER with FCAM on a table of pairs of photographs.

    vicinal train cross_view data=pairs.csv                                  # query_path,gallery_path[,angle][,split]
    vicinal train cross_view data=pairs.csv weights=resnet18-f37072fd.pth    # from torchvision's file
    vicinal index RUN aerial/                                                # by the network of the gallery
    vicinal search RUN photograph.jpg                                        # asked by the network of the queries

Cost: minutes to hours on a GPU, by the number of pairs.
Expected: depends on the data; the report shows the untrained networks beside it.
"""

import copy
from dataclasses import dataclass

from vicinal.data.records import Dataset, Records
from vicinal.data.transforms import ImageTransform, Transform
from vicinal.losses import HardExemplarLoss
from vicinal.methods.her import HER, Orientation
from vicinal.methods.optimisation import Optimisation
from vicinal.methods.paired_views import roles_of
from vicinal.models import Attention, Embedder, OrientationHead, ResNet, TwoStreamEmbedder, load_weights
from vicinal.sampling import CrossViewSampler
from vicinal.training.recipe import Recipe


@dataclass(frozen=True, kw_only=True)
class CrossViewPairs(Recipe):
    """Cai et al. 2019: ResNet-18 with attention for each view, 1,024 dimensions.

    Both networks start alike, from public weights where a file is named; attention has none and starts at random.
    """

    data: Dataset
    transform: Transform = ImageTransform(size=224, resize=224, fit="squash")
    optimisation: Optimisation = Optimisation(learning_rate=1e-4, head_factor=10.0)
    orientation: Orientation = Orientation()
    attention: Attention = "fcam"
    weights: str | None = None
    dim: int = 1024
    pairs: int = 12
    margin: float = 0.15
    scale: float = 5.0

    def build(self, train: Records) -> HER:
        backbone = ResNet(18, attention=self.attention)
        if self.weights is not None:
            load_weights(backbone, self.weights, ignore=backbone.classifiers, strict=False)
        query = Embedder(backbone, self.dim)
        return HER.optimised(
            TwoStreamEmbedder(query, copy.deepcopy(query)),
            HardExemplarLoss(self.margin, scale=self.scale),
            CrossViewSampler(train.labels, classes=self.pairs, seed=self.seed, roles=roles_of(train)),
            self.optimisation,
            self.orientation,
            head=OrientationHead(self.dim),
            epochs=self.epochs,
            seed=self.seed,
        )
