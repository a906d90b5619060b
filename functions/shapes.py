"""A small convolutional network that tells circles, squares and triangles apart.

Its weights are numbers in `shapes_weights.py`, made by `train_shapes.py`; they travel as source with the
function that uses them.  The network is built once per worker.
"""

from __future__ import annotations

import base64
import functools
import io
from typing import TYPE_CHECKING, Any

from functions.shapes_weights import BIASES, SCALES, WEIGHTS

if TYPE_CHECKING:
    from PIL.Image import Image

LABELS = ("circle", "square", "triangle")
SIDE = 32
MAX_PIXELS = 4096 * 4096
SHAPES = {"first": (8, 1, 3, 3), "second": (16, 8, 3, 3), "third": (16, 16, 3, 3), "last": (3, 256)}


def classify_image(data: bytes) -> tuple[str, dict[str, float]]:
    """The most likely label of a picture, and the probability of each."""
    import torch

    network, device = load_network()
    with torch.inference_mode():
        scores = network(as_input(open_image(data)).to(device)).softmax(dim=1)[0].tolist()
    best = max(range(len(LABELS)), key=scores.__getitem__)
    return LABELS[best], {label: round(score, 6) for label, score in zip(LABELS, scores, strict=True)}


def open_image(data: bytes) -> Image:
    """The picture in grey; ValueError if it is none or too large."""
    from PIL import Image, UnidentifiedImageError

    try:
        image = Image.open(io.BytesIO(data))
        if image.width * image.height > MAX_PIXELS:
            raise ValueError(f"the picture has {image.width} x {image.height} pixels, the limit is 4096 x 4096")
        return image.convert("L")
    except (UnidentifiedImageError, OSError, SyntaxError) as error:
        raise ValueError("these bytes are not a picture that can be opened") from error


def as_input(image: Image) -> Any:
    """The picture as a tensor [1, 1, 32, 32]: the shape alone, bright on dark, cut out and scaled."""
    import torch
    from PIL import Image as Pictures
    from PIL import ImageChops

    background = image.getpixel((0, 0))
    differs = ImageChops.difference(image, Pictures.new("L", image.size, background))
    box = differs.point(lambda value: 255 if value > 24 else 0).getbbox()
    if box is None:
        raise ValueError("the picture has one colour only")
    cut = differs.crop(box)
    side = max(cut.size)
    square = Pictures.new("L", (side, side), 0)
    square.paste(cut, ((side - cut.width) // 2, (side - cut.height) // 2))
    small = square.resize((SIDE, SIDE), Pictures.Resampling.BILINEAR)
    pixels = torch.frombuffer(bytearray(small.tobytes()), dtype=torch.uint8).float().reshape(1, 1, SIDE, SIDE)
    return pixels / pixels.max().clamp(min=1)


def build_network() -> Any:
    """The network without weights."""
    from torch import nn

    return nn.Sequential(
        nn.Conv2d(1, 8, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(8, 16, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 16, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(256, 3),
    )


@functools.cache
def load_network() -> tuple[Any, Any]:
    """The trained network, on the GPU where there is one; once per process."""
    import torch

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    network = build_network()
    for layer, (name, shape) in zip(weighted_layers(network), SHAPES.items(), strict=True):
        numbers = torch.frombuffer(bytearray(base64.b85decode(WEIGHTS[name])), dtype=torch.int8).float()
        layer.weight.data = (numbers * SCALES[name]).reshape(shape)
        layer.bias.data = torch.tensor(BIASES[name])
    return network.eval().to(device), device


def weighted_layers(network: Any) -> list[Any]:
    return [layer for layer in network if hasattr(layer, "weight")]
