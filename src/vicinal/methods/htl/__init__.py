"""HTL: Deep Metric Learning with Hierarchical Triplet Loss (Ge, Huang, Dong and Scott, ECCV 2018).

| paper | here |
|---|---|
| the class tree, d_H and S | `vicinal.samplers.class_tree.ClassTree` |
| anchor-neighbor sampling | `vicinal.samplers.AnchorNeighborSampler` |
| the loss with dynamic margins α_z | `vicinal.losses.HierarchicalTripletLoss.set_margins` |
| Algorithm 1 | `method.HTL` |
"""

from vicinal.methods.htl.method import HTL, TrainingEmbeddings

__all__ = ["HTL", "TrainingEmbeddings"]
