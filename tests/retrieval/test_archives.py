"""Archives: images come out, nothing leaves the folder, nothing explodes."""

import io
import tarfile
import zipfile

import pytest
from PIL import Image

from vicinal.errors import DataError
from vicinal.retrieval import archives
from vicinal.retrieval.archives import FOLDER, is_archive, unpack


def png():
    content = io.BytesIO()
    Image.new("RGB", (4, 4), "red").save(content, "PNG")
    return content.getvalue()


def zipped(path, members):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def tarred(path, members, kind=tarfile.REGTYPE):
    with tarfile.open(path, "w:gz" if path.name.endswith("gz") else "w") as archive:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.type, member.size, member.linkname = kind, len(content), "/etc/passwd"
            archive.addfile(member, io.BytesIO(content))
    return path


def archive(path, members):
    return zipped(path, members) if path.suffix == ".zip" else tarred(path, members)


NAMES = ["pictures.zip", "pictures.tar", "pictures.tar.gz", "pictures.tgz"]


@pytest.mark.parametrize("name", NAMES)
def test_images_come_out_and_nothing_else(name, tmp_path):
    members = {
        "a/1.png": png(),
        "a/notes.txt": b"no image",
        "a/._1.png": b"hidden",
        "2.JPG": b"not looked at yet",
    }
    path = archive(tmp_path / name, members)
    root = tmp_path / "c" / unpack(path, tmp_path / "c")
    found = sorted(file.relative_to(root).as_posix() for file in root.rglob("*") if file.is_file())
    assert found == ["2.JPG", "a/1.png"] and (root / "a/1.png").read_bytes() == png()
    assert is_archive(path)


def test_an_unchanged_archive_is_unpacked_once_and_a_changed_one_again(tmp_path):
    path = zipped(tmp_path / "p.zip", {"1.png": png()})
    first = unpack(path, tmp_path / "c")
    assert unpack(path, tmp_path / "c") == first
    zipped(path, {"1.png": png(), "2.png": png()})
    assert unpack(path, tmp_path / "c") != first


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("member", ["../out.png", "a/../../out.png", "/tmp/out.png", "..\\out.png"])
def test_a_name_that_leads_out_is_rejected(name, member, tmp_path):
    path = archive(tmp_path / name, {"fine.png": png(), member: png()})
    with pytest.raises(DataError, match="leads out"):
        unpack(path, tmp_path / "c")
    assert not list((tmp_path / "c" / FOLDER).iterdir()) and not (tmp_path / "out.png").exists()


@pytest.mark.parametrize(
    "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE]
)
def test_links_and_devices_in_a_tar_are_rejected(kind, tmp_path):
    with pytest.raises(DataError, match="link or device"):
        unpack(tarred(tmp_path / "p.tar", {"1.png": b""}, kind), tmp_path / "c")


def test_a_link_in_a_zip_is_rejected(tmp_path):
    entry = zipfile.ZipInfo("1.png")
    entry.external_attr = 0o120777 << 16
    with zipfile.ZipFile(tmp_path / "p.zip", "w") as opened:
        opened.writestr(entry, "/etc/passwd")
    with pytest.raises(DataError, match=r"the link '1\.png'"):
        unpack(tmp_path / "p.zip", tmp_path / "c")


@pytest.mark.parametrize("name", ["bomb.zip", "bomb.tar.gz"])
def test_a_bomb_is_rejected_before_it_unfolds(name, tmp_path, monkeypatch):
    monkeypatch.setattr(archives, "_RATIO", 4.0)
    path = archive(tmp_path / name, {f"{number}.png": bytes(2**21) for number in range(10)})
    with pytest.raises(DataError, match="unfolds to more than"):
        unpack(path, tmp_path / "c")
    assert not list((tmp_path / "c" / FOLDER).iterdir())


def test_what_a_tar_only_passes_over_counts_too(tmp_path, monkeypatch):
    monkeypatch.setattr(archives, "_RATIO", 4.0)
    path = tarred(tmp_path / "bomb.tar.gz", {"1.png": png(), "zeros.bin": bytes(2**23)})
    with pytest.raises(DataError, match="unfolds to more than"):
        unpack(path, tmp_path / "c")


@pytest.mark.parametrize("name", NAMES)
def test_files_and_bytes_have_limits(name, tmp_path, monkeypatch):
    path = archive(tmp_path / name, {f"{number}.png": png() for number in range(5)})
    monkeypatch.setattr(archives, "_FILES", 4)
    with pytest.raises(DataError, match="more than 4 files"):
        unpack(path, tmp_path / "c")
    monkeypatch.undo()
    monkeypatch.setattr(archives, "_BYTES", 100)
    with pytest.raises(DataError, match="more than 100"):
        unpack(path, tmp_path / "c")


@pytest.mark.parametrize("name", NAMES)
def test_a_cut_archive_is_rejected_by_name(name, tmp_path):
    path = archive(tmp_path / name, {f"{number}.png": png() * 50 for number in range(5)})
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(DataError, match=f"{name} cannot be unpacked"):
        unpack(path, tmp_path / "c")


def test_two_entries_of_one_name_are_rejected(tmp_path):
    with zipfile.ZipFile(tmp_path / "p.zip", "w") as opened:
        opened.writestr("1.png", png())
        with pytest.warns(UserWarning, match="Duplicate"):
            opened.writestr("1.png", png())
    with pytest.raises(DataError, match="cannot be unpacked"):
        unpack(tmp_path / "p.zip", tmp_path / "c")
