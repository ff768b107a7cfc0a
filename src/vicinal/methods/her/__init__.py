"""HER: Ground-to-Aerial Geo-Localization With a Hard Exemplar Reweighting Triplet Loss (Cai et al., ICCV 2019).

| paper | here |
|---|---|
| w_hard and the weighted soft-margin loss | `vicinal.losses.HardExemplarLoss` |
| FCAM attention, two streams | `vicinal.models` |
| orientation regression | `vicinal.models.orientation.OrientationHead`, `losses.hard_exemplar.orientation_errors` |
| the whole loss, λ1 and λ2 | `method.HER.step` |
"""

from vicinal.methods.her.method import HER

__all__ = ["HER"]
