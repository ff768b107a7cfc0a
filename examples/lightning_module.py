"""Train with PyTorch Lightning: vicinal's network, loss, batches and optimizer in a
`LightningModule`.

pip install 'vicinal[loops]'
python examples/lightning_module.py
"""

import lightning
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from vicinal.evaluation import evaluate
from vicinal.losses import MultiSimilarityLoss
from vicinal.methods.optimizer import OptimizerConfig
from vicinal.models import Embedder, Identity
from vicinal.samplers import PKSampler


class MetricLearning(lightning.LightningModule):
    """Any embedder and any loss; ``steps`` is how many updates the schedule is made for."""

    def __init__(
        self, embedder: Embedder, loss: nn.Module, optimizer: OptimizerConfig, steps: int
    ) -> None:
        super().__init__()
        self.embedder, self.loss, self.optimizer, self.steps = embedder, loss, optimizer, steps

    def training_step(self, batch: tuple[Tensor, Tensor], _: int) -> Tensor:
        inputs, labels = batch
        embeddings = self.embedder.embed(
            self.embedder.features(inputs)
        )  # losses normalize by themselves
        loss: Tensor = self.loss(embeddings, labels)
        self.log("loss", loss)
        return loss

    def configure_optimizers(self) -> dict[str, object]:
        optimizer, schedule = self.optimizer.build(
            self.embedder, steps=self.steps, others=self.loss.parameters()
        )
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def fit(module: MetricLearning, loader: object, epochs: int) -> lightning.Trainer:
    trainer = lightning.Trainer(
        max_epochs=epochs,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        accelerator="cpu",
    )
    trainer.fit(module, loader)
    return trainer


if __name__ == "__main__":
    rng = torch.Generator().manual_seed(0)
    labels = torch.arange(400) // 10
    inputs = torch.randn(40, 32, generator=rng)[labels] + torch.randn(400, 32, generator=rng)
    known = labels < 20  # other classes are for testing
    sampler = PKSampler(labels[known].numpy(), classes=8, per_class=4, seed=0)
    loader = DataLoader(TensorDataset(inputs[known], labels[known]), batch_sampler=sampler)
    embedder = Embedder(Identity(32), 16)
    module = MetricLearning(
        embedder, MultiSimilarityLoss(), OptimizerConfig(), steps=10 * len(sampler)
    )
    fit(module, loader, epochs=10)
    print(evaluate(embedder(inputs[~known]), labels[~known], metrics=["recall@1", "map@r"]))
