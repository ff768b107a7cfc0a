"""Two whole programs written for pytorch-metric-learning, which run on ours after changing their
import lines."""

from runpy import run_path

import pytest
import torch

pytest.importorskip("pytorch_metric_learning")
pytest.importorskip("faiss")  # with which the package searches neighbors

IMPORTS = {
    "from pytorch_metric_learning import": "from vicinal.compat.pml import",
    "from pytorch_metric_learning.utils.accuracy_calculator import": "from vicinal.compat.pml "
    "import",
}

# After the package's example on MNIST; the pictures are random, 10 classes around templates.
MNIST = """
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from pytorch_metric_learning import distances, losses, miners, reducers, testers
from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator

torch.manual_seed(0)
templates = torch.randn(10, 1, 12, 12)


def digits(count):
    labels = torch.arange(count) % 10
    return torch.utils.data.TensorDataset(templates[labels] + 2 * torch.randn(count, 1, 12, 12), labels)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 4, 3, 1)
        self.fc1 = nn.Linear(100, 16)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        return self.fc1(torch.flatten(x, 1))


def train(model, loss_func, mining_func, device, train_loader, optimizer, epoch):
    model.train()
    for batch_idx, (data, labels) in enumerate(train_loader):
        data, labels = data.to(device), labels.to(device)
        optimizer.zero_grad()
        embeddings = model(data)
        indices_tuple = mining_func(embeddings, labels)
        loss = loss_func(embeddings, labels, indices_tuple)
        loss.backward()
        optimizer.step()
        seen.append((loss.item(), mining_func.num_triplets))


def get_all_embeddings(dataset, model):
    tester = testers.BaseTester(dataloader_num_workers=0)
    return tester.get_all_embeddings(dataset, model)


def test(train_set, test_set, model, accuracy_calculator):
    train_embeddings, train_labels = get_all_embeddings(train_set, model)
    test_embeddings, test_labels = get_all_embeddings(test_set, model)
    train_labels = train_labels.squeeze(1)
    test_labels = test_labels.squeeze(1)
    accuracies = accuracy_calculator.get_accuracy(test_embeddings, test_labels, train_embeddings, train_labels, False)
    seen.append((accuracies["precision_at_1"], 0))


device = torch.device("cpu")
dataset1, dataset2 = digits(120), digits(40)
train_loader = torch.utils.data.DataLoader(dataset1, batch_size=40, shuffle=True)
model = Net().to(device)
optimizer = optim.Adam(model.parameters(), lr=0.01)
num_epochs = 2

### pytorch-metric-learning stuff ###
distance = distances.CosineSimilarity()
reducer = reducers.ThresholdReducer(low=0)
loss_func = losses.TripletMarginLoss(margin=0.2, distance=distance, reducer=reducer)
mining_func = miners.TripletMarginMiner(margin=0.2, distance=distance, type_of_triplets="semihard")
accuracy_calculator = AccuracyCalculator(include=("precision_at_1",), k=1)

for epoch in range(1, num_epochs + 1):
    train(model, loss_func, mining_func, device, train_loader, optimizer, epoch)
    test(dataset1, dataset2, model, accuracy_calculator)
"""

# A classifier of proxies beside pairs of a memory, two kinds of reducers, and a tester over splits.
SEVERAL = """
import torch
from pytorch_metric_learning import distances, losses, miners, reducers, testers
from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator

torch.manual_seed(1)
centers = torch.randn(8, 10)
labels = torch.arange(160) % 8
features = centers[labels] + 0.5 * torch.randn(160, 10)
trunk, embedder = torch.nn.Linear(10, 12), torch.nn.Linear(12, 6)

pairs = losses.ContrastiveLoss(
    pos_margin=0.1,
    neg_margin=1.2,
    distance=distances.LpDistance(normalize_embeddings=True, p=2, power=1),
    reducer=reducers.MultipleReducers(
        {"pos_loss": reducers.MeanReducer(), "neg_loss": reducers.AvgNonZeroReducer()}
    ),
)
loss_func = losses.MultipleLosses(
    [losses.NTXentLoss(temperature=0.2), losses.MultiSimilarityLoss(alpha=2, beta=40, base=0.5), pairs],
    miners=[None, miners.MultiSimilarityMiner(epsilon=0.2), miners.PairMarginMiner(pos_margin=0.1, neg_margin=1.3)],
    weights=[1, 0.5, 2],
)
memory = losses.CrossBatchMemory(losses.SupConLoss(temperature=0.3), embedding_size=6, memory_size=64)
optimizer = torch.optim.SGD([*trunk.parameters(), *embedder.parameters()], lr=0.05)
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(features, labels), batch_size=32, shuffle=True)
for epoch in range(2):
    for data, classes in loader:
        optimizer.zero_grad()
        embeddings = embedder(torch.relu(trunk(data)))
        loss = loss_func(embeddings, classes) + memory(embeddings, classes)
        loss.backward()
        optimizer.step()
        seen.append((loss.item(), 0))

tester = testers.GlobalEmbeddingSpaceTester(
    batch_size=16,
    dataloader_num_workers=0,
    accuracy_calculator=AccuracyCalculator(include=("precision_at_1", "r_precision", "mean_average_precision_at_r")),
)
dataset = torch.utils.data.TensorDataset(features, labels)
parts = {"train": range(100), "val": range(100, 160)}
halves = {name: torch.utils.data.Subset(dataset, rows) for name, rows in parts.items()}
found = tester.test(halves, 1, trunk, embedder, splits_to_eval=[("val", ["val"]), ("train", ["val"])])
for split in ("val", "train"):
    for name in ("precision_at_1", "r_precision", "mean_average_precision_at_r"):
        seen.append((found[split][name + "_level0"], 0))
"""


@pytest.fixture
def float64():
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)  # so that both libraries round alike
    yield
    torch.set_default_dtype(before)


@pytest.mark.parametrize("program", [MNIST, SEVERAL], ids=["mnist", "several"])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_program_runs_on_ours_with_the_same_losses(program, float64, tmp_path):
    ours = program
    for theirs, replaced in IMPORTS.items():
        ours = ours.replace(theirs, replaced)
    assert "pytorch_metric_learning" not in ours and "pytorch_metric_learning" in program
    logs = []
    for source in (program, ours):
        logs.append([])
        (tmp_path / "program.py").write_text(source)
        run_path(str(tmp_path / "program.py"), init_globals={"seen": logs[-1]})
    assert len(logs[0]) == len(logs[1]) > 6
    for theirs, mine in zip(*logs, strict=True):
        assert mine == pytest.approx(theirs, rel=1e-6, abs=1e-6)
