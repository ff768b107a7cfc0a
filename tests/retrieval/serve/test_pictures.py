"""Uploads are measured before they are decoded; what is sent carries nothing of the file but its
pixels."""

from io import BytesIO

import pytest
from fastapi import HTTPException
from PIL import Image
from tests.pictures import claiming

from vicinal.retrieval.pages import encoded
from vicinal.retrieval.serve.guard import decoded


def rejected(data: bytes) -> HTTPException:
    with pytest.raises(HTTPException) as caught:
        decoded(data)
    return caught.value


@pytest.mark.parametrize("kind", ["jpeg", "png", "webp", "gif", "bmp"])
def test_known_types_are_told_by_content(kind, chance, as_bytes, drawn):
    assert decoded(as_bytes(drawn("disc", chance), kind)).size == (96, 96)


def test_what_is_no_picture_or_of_a_type_that_nobody_offered_is_415(chance, as_bytes, drawn):
    for data in (b"hello", as_bytes(drawn("disc", chance), "tiff")):
        assert rejected(data).status_code == 415


def test_pixels_are_counted_before_decoding():
    assert rejected(claiming(13_000, 12_000)).status_code == 413
    assert rejected(claiming(60_000, 60_000)).status_code == 413  # beyond Pillow's own alarm


@pytest.mark.parametrize("kind", ["jpeg", "png", "webp", "gif", "bmp"])
def test_a_picture_cut_off_anywhere_is_rejected_or_whole(kind, chance, as_bytes, drawn):
    data = as_bytes(drawn("disc", chance), kind)
    # A PNG's last 12 bytes only say that it ends.
    for length in range(0, len(data) - 12, max(1, len(data) // 23)):
        assert rejected(data[:length]).status_code in (415, 422)


def test_a_picture_is_sent_upright_small_and_without_metadata(chance, drawn):
    image = drawn("square", chance).resize((400, 200))
    exif = Image.Exif()
    exif[0x0112] = 6  # orientation: turn right; description
    exif[0x010E] = "a secret place"
    file = BytesIO()
    image.save(file, "jpeg", exif=exif, comment=b"a secret place")
    content, kind = encoded(Image.open(BytesIO(file.getvalue())), 128)
    assert kind == "image/jpeg" and b"secret" not in content and b"Exif" not in content
    assert Image.open(BytesIO(content)).size == (64, 128)


def test_small_pictures_are_sent_without_loss(chance, drawn):
    small = drawn("disc", chance).resize((40, 30))
    content, kind = encoded(small, 128)
    assert kind == "image/png" and Image.open(BytesIO(content)).tobytes() == small.tobytes()


@pytest.mark.parametrize("mode", ["CMYK", "RGBA", "P", "I;16", "LA", "1", "F"])
def test_a_picture_of_any_mode_with_damaged_tags_is_sent(mode):
    image = Image.new(mode, (90, 70))
    image.info["exif"] = (
        b"Exif\x00\x00MM\x00*\x00\x00\x00\x08\x00\x02\x01\x12\x00\x03\xff\xff"  # cut off
    )
    content, _ = encoded(image, 80)
    assert Image.open(BytesIO(content)).size == (80, 62)
