"""The sample functions, run here."""

from __future__ import annotations

import io
import json
import random

import pytest

from functions import demo
from functions.shapes import LABELS, classify_image
from functions.train_shapes import draw_shape


def png(image) -> bytes:
    data = io.BytesIO()
    image.save(data, "PNG")
    return data.getvalue()


def test_echo_returns_what_it_gets():
    assert demo.echo(x=1) == {"x": 1}
    assert demo.echo() == {}


def test_blob_returns_its_bytes():
    assert demo.blob(b"\x00\xff") == b"\x00\xff"


def test_statistics_are_those_of_the_numbers():
    told = demo.statistics([1, 2, 3, 4])
    assert told["mean"] == 2.5
    assert told["median"] == 2.5
    assert json.dumps(told)
    with pytest.raises(ValueError, match="at least one"):
        demo.statistics([])


def test_matmul_is_the_same_for_the_same_seed():
    assert demo.matmul(16, seed=1) == demo.matmul(16, seed=1) != demo.matmul(16, seed=2)
    with pytest.raises(ValueError, match="1 to 4096"):
        demo.matmul(0)


def test_fail_raises_its_own_type():
    with pytest.raises(demo.DemoError, match="boo"):
        demo.fail("boo")


def test_slow_takes_its_time():
    assert demo.slow(0.01)["seconds"] >= 0.01
    with pytest.raises(ValueError, match="0 to 60"):
        demo.slow(-1)


@pytest.mark.parametrize("label", LABELS)
def test_clean_pictures_are_classified_rightly(label):
    rng = random.Random(f"pictures that the training has not seen: {label}")
    told = [demo.classify(png(draw_shape(label, rng))) for _ in range(30)]
    assert {item["label"] for item in told} == {label}
    assert all(abs(sum(item["scores"].values()) - 1) < 1e-3 for item in told)


def test_colour_and_transparency_do_not_matter():
    from PIL import Image, ImageDraw

    image = Image.new("RGBA", (100, 80), (20, 40, 160, 255))
    ImageDraw.Draw(image).ellipse((30, 20, 70, 60), fill=(250, 230, 20, 255))
    assert classify_image(png(image))[0] == "circle"


@pytest.mark.parametrize("data", [b"", b"not a picture", b"\x89PNG\r\n\x1a\n broken"])
def test_bytes_that_are_no_picture_are_refused(data):
    with pytest.raises(ValueError, match="not a picture"):
        demo.classify(data)


def test_an_empty_picture_is_refused():
    from PIL import Image

    with pytest.raises(ValueError, match="one colour"):
        demo.classify(png(Image.new("L", (40, 40), 7)))
