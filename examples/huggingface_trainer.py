"""Train with Hugging Face's `Trainer`: vicinal's network and loss as a model, its batches and
optimizer beside.

pip install 'vicinal[loops]'
python examples/huggingface_trainer.py
"""

import tempfile

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset
from transformers import Trainer, TrainingArguments

from vicinal.evaluation import evaluate
from vicinal.losses import MultiSimilarityLoss
from vicinal.methods.optimizer import OptimizerConfig
from vicinal.models import Embedder, Identity
from vicinal.samplers import PKSampler


class MetricLearning(nn.Module):
    """Any embedder and any loss, called as the trainer calls models."""

    def __init__(self, embedder: Embedder, loss: nn.Module) -> None:
        super().__init__()
        self.embedder, self.loss = embedder, loss

    def forward(self, inputs: Tensor, labels: Tensor) -> dict[str, Tensor]:
        embeddings = self.embedder.embed(
            self.embedder.features(inputs)
        )  # losses normalize by themselves
        return {"loss": self.loss(embeddings, labels), "embeddings": embeddings}


class Rows(Dataset[dict[str, Tensor]]):
    """Inputs and labels by the names of the model's arguments."""

    def __init__(self, inputs: Tensor, labels: Tensor) -> None:
        self.inputs, self.labels = inputs, labels

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, row: int) -> dict[str, Tensor]:
        return {"inputs": self.inputs[row], "labels": self.labels[row]}


class BatchTrainer(Trainer):
    """A `Trainer` whose batches come from a sampler of batches: classes x samples, pairs,
    triplets."""

    def __init__(self, *arguments: object, batches: object, **options: object) -> None:
        super().__init__(*arguments, **options)
        self.batches = batches

    def get_train_dataloader(self) -> DataLoader:
        return DataLoader(self.train_dataset, batch_sampler=self.batches)


def fit(
    model: MetricLearning, rows: Rows, batches: object, optimizer: OptimizerConfig, steps: int
) -> BatchTrainer:
    arguments = TrainingArguments(
        output_dir=tempfile.mkdtemp(),
        max_steps=steps,
        max_grad_norm=0.0,  # vicinal clips by optimizer.clip, if at all
        logging_steps=1,
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
    )
    both = optimizer.build(model.embedder, steps=steps, others=model.loss.parameters())
    trainer = BatchTrainer(model, arguments, train_dataset=rows, batches=batches, optimizers=both)
    trainer.train()
    return trainer


if __name__ == "__main__":
    rng = torch.Generator().manual_seed(0)
    labels = torch.arange(400) // 10
    inputs = torch.randn(40, 32, generator=rng)[labels] + torch.randn(400, 32, generator=rng)
    known = labels < 20  # other classes are for testing
    sampler = PKSampler(labels[known].numpy(), classes=8, per_class=4, seed=0)
    model = MetricLearning(Embedder(Identity(32), 16), MultiSimilarityLoss())
    fit(
        model,
        Rows(inputs[known], labels[known]),
        sampler,
        OptimizerConfig(),
        steps=10 * len(sampler),
    )
    print(evaluate(model.embedder(inputs[~known]), labels[~known], metrics=["recall@1", "map@r"]))
