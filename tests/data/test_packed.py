"""Parts that were carried somewhere are trusted only when they are whole."""

import json
import pickle

import numpy as np
import pytest

from vicinal.data import DATASETS, open_path
from vicinal.data.folder import Folder
from vicinal.data.packed import MANIFEST, Packed
from vicinal.data.packing import pack
from vicinal.description import build, describe
from vicinal.errors import DataError


@pytest.fixture
def packed(class_folders, tmp_path_factory):
    folder = tmp_path_factory.mktemp("carried")
    pack(Folder(str(class_folders), test=0.5).load(), folder, part_bytes=10_240)
    return folder


def test_a_path_or_a_description_opens_it(packed):
    assert open_path(packed) == Packed(str(packed)) == build(describe(Packed(str(packed))), DATASETS)
    records = Packed(str(packed)).load()
    assert len(records) == 12 and len(list(packed.glob("part-*.tar"))) > 1


def test_the_source_may_be_sent_to_other_processes(packed):
    source = Packed(str(packed)).load().source
    copy = pickle.loads(pickle.dumps(source))  # noqa: S301
    np.testing.assert_array_equal(np.asarray(copy.read(7)), np.asarray(source.read(7)))
    assert copy.name(7) == source.name(7) == "c/1.jpg"


def test_missing_parts_are_refused_by_number(packed):
    (packed / "part-001.tar").unlink()
    (packed / "rows.npz").unlink()
    with pytest.raises(DataError, match=r"but 2 are missing: part-001\.tar, rows\.npz\."):
        Packed(str(packed)).load(strict=False)


def test_a_changed_byte_is_noticed_by_its_hash_and_a_cut_by_its_size(packed):
    part = packed / "part-000.tar"
    content = bytearray(part.read_bytes())
    content[700] ^= 1
    part.write_bytes(content)
    with pytest.raises(DataError, match=r"part-000\.tar are not the files"):
        Packed(str(packed)).load()
    assert len(Packed(str(packed)).load(strict=False)) == 12  # a check then reads and names each image
    part.write_bytes(content[:-512])
    with pytest.raises(DataError, match=r"part-000\.tar are not the files"):
        Packed(str(packed)).load(strict=False)


def test_an_unreadable_image_is_refused_by_name(packed):
    records = Packed(str(packed)).load()
    part = packed / "part-000.tar"
    part.write_bytes(bytes(part.stat().st_size))
    with pytest.raises(DataError, match=r"image a/0\.jpg in .*part-000\.tar cannot be read"):
        records.source.read(0)
    part.unlink()
    with pytest.raises(DataError, match=r"image a/0\.jpg in .*part-000\.tar cannot be read"):
        records.source.read(0)


def test_a_set_without_its_list_or_of_another_format_is_refused(packed):
    manifest = json.loads((packed / MANIFEST).read_text())
    for changed in (manifest | {"format": 2}, {"format": 1}, []):
        (packed / MANIFEST).write_text(json.dumps(changed))
        with pytest.raises(DataError, match=r"no packed set of format 1"):
            Packed(str(packed)).load()
    (packed / MANIFEST).write_text(json.dumps(manifest | {"images": 13}))
    with pytest.raises(DataError, match=r"has 12 rows, but packed\.json counts 13 images"):
        Packed(str(packed)).load()
    (packed / MANIFEST).unlink()
    with pytest.raises(DataError, match=r"it has no packed\.json"):
        Packed(str(packed)).load()
