"""The programs that are measured: each puts a model on a device and gives one step of work on it.

Every step ends with a value on the CPU, so that nothing is still under way when the clock stops.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

from functions.models.recurrent import LstmClassifier
from functions.models.resnet import resnet18, resnet50
from functions.models.transformer import BertForAnswers, Gpt

Step = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Program:
    """What is run, and how."""

    what: str
    on: Callable[[torch.device], Step]


def _inference(model: nn.Module, *inputs: torch.Tensor, resident: bool = False) -> Callable[[torch.device], Step]:
    def on(device: torch.device) -> Step:
        there = model.eval().to(device)
        kept = tuple(x.to(device) for x in inputs) if resident else inputs

        def step() -> object:
            with torch.no_grad():
                outputs = there(*(x.to(device) for x in kept))
                return (outputs if isinstance(outputs, torch.Tensor) else torch.stack(outputs)).cpu()

        return step

    return on


def _resnet50(resident: bool = False) -> Callable[[torch.device], Step]:
    return lambda device: _inference(resnet50(), torch.randn(8, 3, 224, 224), resident=resident)(device)


def _bert(resident: bool = False) -> Callable[[torch.device], Step]:
    def on(device: torch.device) -> Step:
        tokens, parts = torch.randint(0, 30_000, (8, 128)), torch.zeros(8, 128, dtype=torch.int64)
        return _inference(BertForAnswers(), tokens, parts, resident=resident)(device)

    return on


def _resnet18_training(batch: int) -> Callable[[torch.device], Step]:
    def on(device: torch.device) -> Step:
        model = resnet18().train().to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
        images, labels = torch.randn(batch, 3, 224, 224).to(device), torch.randint(0, 1000, (batch,)).to(device)

        def step() -> object:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            return loss.item()

        return step

    return on


def _gpt_training(device: torch.device) -> Step:
    return gpt_training(Gpt().to(device), torch.randint(0, 512, (4, 129)).to(device))


def gpt_training(model: Gpt, tokens: torch.Tensor) -> Step:
    """One step of training on these tokens."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)

    def step() -> object:
        optimizer.zero_grad()
        loss = model.loss(tokens)
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def _lstm(device: torch.device) -> Step:
    return _inference(LstmClassifier(), torch.randn(8, 64, 64))(device)


def _adamw(**how: bool) -> Callable[[torch.device], Step]:
    """200 small tensors, the optimizer's step alone, ten times as in a loop that logs now and then; then a value."""

    def on(device: torch.device) -> Step:
        tensors = [torch.randn(32, 32).to(device).requires_grad_() for _ in range(200)]
        for tensor in tensors:
            tensor.grad = torch.randn(32, 32).to(device)
        optimizer = torch.optim.AdamW(tensors, lr=1e-3, **how)

        def step() -> object:
            for _ in range(10):
                optimizer.step()
            return tensors[-1][0, 0].item()

        return step

    return on


def _workload(name: str) -> Callable[[torch.device], Step]:
    """One of the six sample workloads, with the arguments that it has by default."""

    def on(device: torch.device) -> Step:
        module = importlib.import_module(f"functions.workloads.{name}")
        given = {key: value.default for key, value in inspect.signature(module.near.raw).parameters.items()}
        return lambda: module.run(device, **given)

    return on


WORKLOADS = ("kmeans", "ct_scan", "face_detection", "face_identification", "bert_qa", "resnet50")
PROGRAMS = {
    **{f"workload-{name}": Program(name.replace("_", " "), _workload(name)) for name in WORKLOADS},
    "resnet50": Program("ResNet-50, batch 8", _resnet50()),
    "resnet50-resident": Program("ResNet-50, batch 8, images on the device", _resnet50(resident=True)),
    "bert": Program("BERT base shape, 8 x 128", _bert()),
    "bert-resident": Program("BERT base shape, 8 x 128, tokens on the device", _bert(resident=True)),
    "resnet18-training": Program("ResNet-18 training step, batch 8", _resnet18_training(8)),
    "resnet18-training-32": Program("ResNet-18 training step, batch 32", _resnet18_training(32)),
    "lstm": Program("4-layer LSTM", _lstm),
    "gpt": Program("GPT of 11 million parameters, training step", _gpt_training),
    "adamw-foreach": Program("AdamW foreach, 200 small tensors", _adamw(foreach=True)),
    "adamw-fused": Program("AdamW fused, 200 small tensors", _adamw(fused=True)),
    "adamw-loop": Program("AdamW for-loop, 200 small tensors", _adamw(foreach=False)),
}
