"""The journal: what was appended is there again, whatever happened to the end of the file."""

from hashlib import sha256

import numpy as np
import pytest

from vicinal.search.journal import VectorJournal

DIGESTS = [sha256(bytes([number])).hexdigest() for number in range(6)]
VECTORS = np.random.default_rng(0).standard_normal((6, 3)).astype(np.float32)


def opened(path, model="m", dim=3):
    return VectorJournal(path, dim=dim, model=model)


@pytest.fixture
def path(tmp_path):
    journal = opened(tmp_path / "journal.bin")
    journal.append(DIGESTS[:2], VECTORS[:2])
    journal.append(DIGESTS[2:5], VECTORS[2:5])
    journal.close()
    return tmp_path / "journal.bin"


def test_vectors_are_found_again_by_their_content(path):
    journal = opened(path)
    assert len(journal) == 5 and DIGESTS[5] not in journal
    assert np.array_equal([journal.vector(digest) for digest in DIGESTS[:5]], VECTORS[:5])
    journal.close()


@pytest.mark.parametrize("lost", [1, 10, 48, 49, 100])
def test_a_cut_end_loses_only_what_was_cut(path, lost):
    path.write_bytes(path.read_bytes()[:-lost])
    journal = opened(path)
    whole = 5 - -(-lost // 48)  # an entry has 32 + 12 + 4 bytes
    assert len(journal) == whole and np.array_equal(journal.vector(DIGESTS[whole - 1]), VECTORS[whole - 1])
    journal.append(DIGESTS[5:], VECTORS[5:])
    journal.close()
    again = opened(path)
    assert len(again) == whole + 1 and np.array_equal(again.vector(DIGESTS[5]), VECTORS[5])
    again.close()


def test_a_damaged_entry_is_not_believed(path):
    content = bytearray(path.read_bytes())
    content[-20] ^= 1
    path.write_bytes(content)
    journal = opened(path)
    assert len(journal) == 4 and DIGESTS[4] not in journal
    journal.close()


@pytest.mark.parametrize(("model", "dim"), [("another", 3), ("m", 4)])
def test_another_model_begins_anew(path, model, dim):
    journal = opened(path, model, dim)
    assert len(journal) == 0
    journal.close()


def test_clearing_removes_the_file(path):
    opened(path).clear()
    assert not path.exists()
