"""Runs that were never trained, for tests of what reads one."""

from vicinal.data import hold_out
from vicinal.data.kept import rows_of
from vicinal.files import write_arrays


def keep_rows(run, data, validation=0.0):
    """Let ``run`` have been trained on ``data``, which lie there already."""
    records = data.load()
    split = hold_out(records, validation, 0) if validation else records
    write_arrays(run.rows_path, rows_of(split))
