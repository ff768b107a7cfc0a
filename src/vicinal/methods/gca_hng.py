"""GCA-HNG: Globally Correlation-Aware Hard Negative Generation (Peng, Huang, Chen, Ke, Dai and
Huang, IJCV 2025, arXiv 2411.13145).

| paper, by its authors' code (PWenJay/GCA-HNG, commit 4333239) | here |
|---|---|
| the graph of a batch and its messages | `SampleGraph`, `Messages` |
| an anchor's negatives, pulled by channels and combined | `combined_negatives` |
| the losses of network, graph and classifier | `GCAHNG.step` |
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity, cross_entropy, gelu, relu, threshold

from vicinal.arguments import Count, NonNegative, Positive
from vicinal.data.records import Batch
from vicinal.errors import ConfigError, DataError
from vicinal.losses.loss import Comparisons, tuple_loss
from vicinal.methods.hdml.method import WindowedMean, interpolation_factor
from vicinal.methods.hdml.synthesis import FeatureClassifier
from vicinal.methods.method import Method, Parts, StepResult
from vicinal.methods.optimizer import AdamW
from vicinal.tuples import Embeddings, Scalar, SingleLabels

Nodes = Embeddings
Edges = Float[Tensor, "n n d"]


class Messages(nn.Module):
    """One layer of the graph: nodes hear nodes of other classes and all their edges, then each edge
    its two ends.

        h ← N(h + Attention(h, of other classes or nothing))
        h ← N(h + Σ_j g(W e_ij)),   h ← N(h + MLP(h))
        e ← N(e + softmax(q(e)·k(x_i), q(e)·k(x_j)) of v(x_i), v(x_j)),   e ← N(e + MLP(e))
            Peng et al. 2025, authors' code

    N is a GELU and then a layer norm, one for all three of the nodes and one for both of the
    edges; g is a GELU and x = g(W h). Nothing is an attention's further place of weight exp(0).
    """

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(dim, heads, add_zero_attn=True)
        self.from_edges = nn.Linear(dim, dim)
        self.mix_nodes = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))
        self.norm_nodes = nn.Sequential(nn.GELU(), nn.LayerNorm(dim))
        self.to_edges = nn.Linear(dim, dim)
        self.query = nn.Linear(dim, dim)
        self.key = nn.Linear(dim, dim)
        self.value = nn.Linear(dim, dim)
        self.mix_edges = nn.Sequential(
            nn.Linear(dim, 4 * dim),
            nn.GELU(),
            nn.LayerNorm(4 * dim),
            nn.Linear(4 * dim, dim),
        )
        self.norm_edges = nn.Sequential(nn.GELU(), nn.LayerNorm(dim))

    def forward(self, nodes: Nodes, edges: Edges, same: Bool[Tensor, "n n"]) -> tuple[Nodes, Edges]:
        heard, _ = self.attention(nodes, nodes, nodes, attn_mask=same, need_weights=False)
        nodes = self.norm_nodes(nodes + heard)
        nodes = self.norm_nodes(nodes + gelu(self.from_edges(edges)).sum(dim=1))
        nodes = self.norm_nodes(nodes + self.mix_nodes(nodes))
        ends = gelu(self.to_edges(nodes))
        keys = self.key(ends)
        values = self.value(ends)
        prefers = (self.query(edges) * (keys[:, None] - keys)).sum(dim=2, keepdim=True)
        first = torch.sigmoid(prefers / math.sqrt(keys.shape[1]))  # softmax of two
        edges = self.norm_edges(edges + torch.lerp(values, values[:, None], first))
        return nodes, self.norm_edges(edges + self.mix_edges(edges))


class SampleGraph(nn.Module):
    """The graph of a batch: what is said of each sample's class, and how each channel of each pair
    is pulled, from 0 to 1.

    Edges begin as products of the ends' channels, centered and of length 1 as for a correlation.
    """

    def __init__(self, dim: int, classes: int, layers: int, heads: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Messages(dim, heads) for _ in range(layers)])
        self.edge_norm = nn.BatchNorm1d(dim)
        self.node_norm = nn.BatchNorm1d(dim)
        for norm in (self.edge_norm, self.node_norm):
            norm.bias.requires_grad = False
        self.pull = nn.Linear(dim, dim)
        self.classify = nn.Linear(dim, classes)

    def forward(
        self, nodes: Nodes, same: Bool[Tensor, "n n"]
    ) -> tuple[Float[Tensor, "n c"], Edges]:
        centered = nodes - nodes.mean(dim=1, keepdim=True)
        unit = nn.functional.normalize(centered, dim=1)
        edges = unit[:, None] * unit
        for layer in self.layers:
            nodes, edges = layer(nodes, edges, same)
        flat = self.edge_norm(edges.flatten(0, 1)).view_as(edges)
        return self.classify(self.node_norm(nodes)), torch.sigmoid(self.pull(flat))


def combined_negatives(
    rows: Float[Tensor, "c k d"],
    pulls: Float[Tensor, "ck ck d"],
    factor: Scalar,
    draws: Float[Tensor, "k k"],
) -> Float[Tensor, "ck c d"]:
    """Pull the rows of each class towards an anchor, and combine them to one.

        n̂ = n + (1 - λ) [1 - d⁺/d]_+ ∘ (a - n),   λ = p exp(-α / J_avg)
        n~ = f_K,   f_1 = n̂_1,   f_i = n̂_i + u_i (f_(i-1) - n̂_i),   u_i ~ U(0, 1)
            Peng et al. 2025, authors' code

    That is Eq. (7) of HDML with a λ for each channel. d⁺ is the anchor's distance from the next of
    its class.

    Args:
        rows: k of each of c classes; all are anchors.
        pulls: p of each anchor and row.
        factor: exp(-α / J_avg).
        draws: u_i for the first to the last anchor of a class; the first of each row is not used.
    """
    classes, members, dim = rows.shape
    anchors = rows.flatten(0, 1)
    reach = torch.linalg.vector_norm(rows - rows.roll(-1, dims=1), dim=2).flatten()
    back = anchors[:, None] - anchors
    distance = torch.linalg.vector_norm(back, dim=2)
    share = relu(distance - reach[:, None]) / threshold(distance, 0.0, 1.0)
    moved = anchors + (1 - factor * pulls) * share[..., None] * back
    moved = moved.view(classes, members, classes, members, dim)
    combined = moved[:, :, :, 0]
    for place in range(1, members):
        kept = draws[:, place].view(1, members, 1, 1)
        combined = torch.lerp(moved[:, :, :, place], combined, kept)
    return combined.flatten(0, 1)


@dataclass(eq=False)
class GCAHNG(Method):
    """GCA-HNG (Peng et al. 2025): a graph of the whole batch says by how much each channel of each
    negative is pulled to its anchor.

        J_metric = J_m + (1 - exp(-β / J_gen)) J_syn + J_node
        J_gen = 1/2 (s CE(n~) + w_cos (1 - cos(a, n~)) + w_div J_div)
            Peng et al. 2025, authors' code

    J_m is the loss of the batch, J_syn that of anchors, the next of their class, and the combined
    negatives n~. J_node is the cross-entropy of the graph's nodes; CE(n~) is that of a classifier
    of embeddings, which learns from real ones alone; J_div falls as pulls differ. J_avg and J_gen
    in exponents are means over the last epoch, without gradient; in the first no negative counts.

    Differs: one pass of the graph serves all losses, where the authors update it by J_node before
    they compute J_gen anew. Their J_m takes the first row of each class as anchor alone, here it is
    the loss as it is; they drop a tenth of the edges' two attention weights.

    Attributes:
        alpha: α, the authors' over ResNet-50.
        beta: β.
        soft_weight: s.
        cosine_weight: w_cos.
        diversity_weight: w_div.
        layers: of the graph.
        heads: of attention between nodes; a divisor of the embedding's dimensions.
        graph_rate: learning rate of the graph.
        classifier_rate: learning rate of the classifier.

    Charts:
        generator: J_node and the three parts of J_gen, weighted. soft should fall and stay low:
            else negatives are pulled faster than they keep their class. cosine falls as negatives
            become harder.
        hardness: lambda is how far pulls may leave negatives where they are, and falls with the
            loss; synthetic_weight is that of J_syn.
    """

    alpha: NonNegative = 5.0
    beta: NonNegative = 20.0
    soft_weight: NonNegative = 20.0
    cosine_weight: NonNegative = 20.0
    diversity_weight: NonNegative = 0.6
    layers: Count = 2
    heads: Count = 4
    graph_rate: Positive = 1.5e-4
    classifier_rate: Positive = 1e-3

    default_loss = "n_pair"
    layouts = ("pairs", "classes")
    chunkable = False
    title = "GCA-HNG"
    needs = "a loss in which one positive pair meets negatives"
    suggests = "n_pair or triplet"
    capturable = False  # rows of a class are counted

    def takes(self, loss: nn.Module) -> bool:
        return tuple_loss(loss, self.title).pair_rows == "pair"

    def setup(self, parts: Parts) -> None:
        super().setup(parts)
        dim = parts.embedder.embedding_dim
        if dim % self.heads:
            raise ConfigError(
                f"method.heads divides the embedding's {dim} dimensions, got {self.heads}. Set "
                "method.heads=1."
            )
        self.classifier = FeatureClassifier(dim, torch.as_tensor(parts.train.labels))
        self.graph = SampleGraph(dim, len(self.classifier.known), self.layers, self.heads)
        groups = [
            {"params": self.graph.parameters(), "lr": self.graph_rate},
            {"params": self.classifier.parameters(), "lr": self.classifier_rate},
        ]
        self.generator_optimizer = self.optimizers["generator"] = AdamW(groups, weight_decay=1e-4)
        window = len(parts.sampler)
        self.acts_from = window
        self.average_loss = WindowedMean(window)
        self.generator_loss = WindowedMean(window)

    def step(self, batch: Batch) -> StepResult:
        embeddings, labels = self.embed(batch)
        rows, classes = by_class(embeddings, labels)
        members = rows.shape[1]
        draws = torch.from_numpy(self.draws().random((members, members))).to(rows)
        own = torch.arange(len(classes), device=classes.device)
        other = own.repeat_interleave(members)[:, None] != own
        factor = interpolation_factor(self.alpha, self.average_loss.last)
        synthetic_weight = 1 - interpolation_factor(self.beta, self.generator_loss.last)
        anchors = rows.flatten(0, 1)
        named, pulls = self.graph(anchors, ~other.repeat_interleave(members, dim=1))
        numbers = torch.searchsorted(self.classifier.known, classes)
        j_node = cross_entropy(named, numbers.repeat_interleave(members))
        j_m = self.loss(embeddings, labels)
        negatives = combined_negatives(rows, pulls.detach(), factor, draws)
        j_syn = self.of_negatives(rows, negatives, other)
        j_metric = j_m + synthetic_weight * j_syn + j_node
        made = combined_negatives(rows.detach(), pulls, factor, draws)
        costs = self.classifier.label_costs(made.flatten(0, 1), classes.repeat(len(anchors)))
        near = cosine_similarity(anchors.detach()[:, None], made, dim=2)
        spread = (pulls - pulls.mean(dim=1, keepdim=True)).square().sum() / len(anchors) ** 2
        parts = {
            "soft": self.soft_weight * costs.mean(),
            "cosine": self.cosine_weight * ((1 - near) * other).mean(),
            "diversity": self.diversity_weight * (1 - spread.sqrt()),
        }
        j_gen = torch.stack([*parts.values()]).sum() / 2
        of_classifier = self.classifier.own_loss(embeddings, labels)
        self.average_loss.add(j_m)
        self.generator_loss.add(j_gen)
        self.differentiate(j_gen + j_node + of_classifier, self.generator_optimizer, keep=True)
        scalars = {
            "real_loss": j_m,
            "synthetic_loss": j_syn,
            "hardness/lambda": factor,
            "hardness/synthetic_weight": synthetic_weight,
            "generator/node": j_node,
            **{f"generator/{name}": part for name, part in parts.items()},
        }
        return self.update(j_metric, embeddings, labels, self.generator_optimizer, **scalars)

    def of_negatives(
        self,
        rows: Float[Tensor, "c k d"],
        negatives: Float[Tensor, "ck c d"],
        other: Bool[Tensor, "ck c"],
    ) -> Scalar:
        """Return J_syn: each row with the next of its class and a negative of each other class."""
        loss = self.loss
        anchors = rows.flatten(0, 1)
        positive = loss.distance(anchors, rows.roll(-1, dims=1).flatten(0, 1)[:, None])
        compared = Comparisons(
            positive,
            torch.ones_like(positive, dtype=torch.bool),
            loss.distance(anchors, negatives),
            other,
            penalty=loss.penalty(anchors, negatives),
        )
        return loss.score(compared)


def by_class(
    embeddings: Embeddings, labels: SingleLabels
) -> tuple[Float[Tensor, "c k d"], Int[Tensor, "c"]]:
    """Return the rows of a batch as k of each of its c classes, and their labels."""
    members = int((labels == labels[0]).sum())
    order = labels.argsort(stable=True)
    if len(labels) % members or bool((labels[order].view(-1, members).diff(dim=1) != 0).any()):
        raise DataError(
            "GCA-HNG needs as many rows of each class in a batch, got batches that have not. Set "
            "sampler=classes or sampler=pairs."
        )
    return embeddings[order].view(-1, members, embeddings.shape[1]), labels[order][
        ::members
    ].contiguous()
