"""Trains the network of `shapes.py` on drawn pictures and writes its weights: `python -m functions.train_shapes`.

The same seed gives the same pictures; the weights are kept as 8-bit numbers with one scale per layer.
"""

from __future__ import annotations

import base64
import math
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from PIL.Image import Image

PICTURES, STEPS, BATCH = 3000, 300, 100


def draw_shape(label: str, rng: random.Random) -> Image:
    """A clean picture of one shape: any size, place, turn and pair of well distinguishable greys."""
    from PIL import Image, ImageDraw

    side = rng.randint(48, 160)
    dark, bright = rng.randint(0, 90), rng.randint(165, 255)
    ground, ink = (dark, bright) if rng.random() < 0.5 else (bright, dark)
    image = Image.new("L", (side, side), ground)
    radius = rng.uniform(0.2, 0.42) * side
    x, y = (rng.uniform(radius + 1, side - radius - 1) for _ in range(2))
    pencil = ImageDraw.Draw(image)
    if label == "circle":
        pencil.ellipse((x - radius, y - radius, x + radius, y + radius), fill=ink)
    else:
        pencil.polygon(_corners(4 if label == "square" else 3, x, y, radius, rng.uniform(0, 2 * math.pi)), fill=ink)
    return image


def _corners(count: int, x: float, y: float, radius: float, turn: float) -> list[tuple[float, float]]:
    angles = [turn + 2 * math.pi * index / count for index in range(count)]
    return [(x + radius * math.cos(angle), y + radius * math.sin(angle)) for angle in angles]


def train(seed: int = 7) -> Any:
    """A trained network."""
    import torch

    from functions.shapes import LABELS, as_input, build_network

    torch.manual_seed(seed)
    rng = random.Random(seed)  # noqa: S311 - pictures, not secrets
    labels = [index % len(LABELS) for index in range(PICTURES)]
    pictures = torch.cat([as_input(draw_shape(LABELS[label], rng)) for label in labels])
    answers = torch.tensor(labels)
    network = build_network()
    optimizer = torch.optim.Adam(network.parameters(), lr=3e-3, weight_decay=1e-4)
    for step in range(STEPS):
        chosen = torch.randint(0, PICTURES, (BATCH,))
        loss = torch.nn.functional.cross_entropy(network(pictures[chosen]), answers[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 100 == 0:
            print(f"step {step}: loss {loss.item():.4f}")
    return network


def write_weights(network: Any, path: Path) -> None:
    """The weights as a Python module."""
    import torch

    from functions.shapes import SHAPES, weighted_layers

    weights, scales, biases = [], [], []
    for name, layer in zip(SHAPES, weighted_layers(network), strict=True):
        weight = layer.weight.detach()
        scale = float(weight.abs().max()) / 127
        numbers = (weight / scale).round().to(torch.int8).flatten().tolist()
        text = base64.b85encode(bytes(number % 256 for number in numbers)).decode()
        lines = "".join(f'        "{text[at : at + 100]}"\n' for at in range(0, len(text), 100))
        weights.append(f'    "{name}": (\n{lines}    ),\n')
        scales.append(f'    "{name}": {scale:.8g},\n')
        numbers_text = "".join(f"        {value:.6g},\n" for value in layer.bias.tolist())
        biases.append(f'    "{name}": [\n{numbers_text}    ],\n')
    head = '"""Weights of the network in `shapes.py`, written by `train_shapes.py`; not edited by hand."""\n\n'
    parts = (("WEIGHTS", weights), ("SCALES", scales), ("BIASES", biases))
    path.write_text(head + "\n".join(f"{name} = {{\n{''.join(items)}}}\n" for name, items in parts), encoding="ascii")


if __name__ == "__main__":
    write_weights(train(), Path(__file__).with_name("shapes_weights.py"))
