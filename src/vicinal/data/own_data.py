"""The data a run was trained on, with the very classes it held out."""

from vicinal.arguments import build
from vicinal.data import DATASETS
from vicinal.data.records import Dataset, Records
from vicinal.data.splits import hold_out
from vicinal.run_directory import RunDirectory


def own_description(run: RunDirectory) -> Dataset:
    """The run's data set, not yet read."""
    data: Dataset = build(run.info["data"]["description"], DATASETS)
    return data


def own_data(run: RunDirectory) -> tuple[Dataset, Records]:
    """The run's data set, and its records split as in training: validation classes are held out again."""
    data, settings = own_description(run), run.settings
    records = data.load()
    if settings["validation"] > 0:
        records = hold_out(records, settings["validation"], settings["seed"])
    return data, records
