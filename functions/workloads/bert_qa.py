"""Question answering: a BERT-base-shaped network marks the piece of a text that answers a question.

The weights are random, so the answers are as deep as that; the work is that of the real thing.
"""

from __future__ import annotations

import functools
from typing import Any

import dgsf
from functions.workloads.places import beside, remote
from functions.workloads.words import SEPARATOR, START, tokens_of

app = dgsf.App("bert_qa", gpu="any", memory="2GiB", timeout=120)
LONGEST = 384  # tokens
LONGEST_ANSWER = 15
QUESTION = "What does the platform share?"
TEXT = (
    "A pool of accelerators stands in one place and many short programs run in another. The platform shares the "
    "accelerators between the programs: each borrows one for the milliseconds that it needs and gives it back."
)


def run(device: Any, question: str, text: str, size: str = "base") -> dict[str, Any]:
    """The answer, where it stands, and the network's confidence."""
    import torch

    model = network(str(device), size)
    words = model.words.num_embeddings
    asked, told = tokens_of(question, words), tokens_of(text, words)
    if not told or len(asked) + len(told) + 3 > LONGEST:
        raise ValueError(f"question and text must have some words, and at most {LONGEST - 3} pieces together")
    numbers = [START, *(item.number for item in asked), SEPARATOR, *(item.number for item in told), SEPARATOR]
    first = len(asked) + 2
    segments = torch.tensor([[0] * first + [1] * (len(numbers) - first)]).to(device)
    with torch.inference_mode():
        starts, ends = model(torch.tensor([numbers]).to(device), segments)
        begin, end, score = best_span(starts[0, first:-1], ends[0, first:-1]).tolist()
    low, high = told[int(begin)].begin, told[int(end)].end
    return {"answer": text[low:high], "begin": low, "end": high, "score": score}


def best_span(starts: Any, ends: Any) -> Any:
    """First and last token of the likeliest answer, and its probability: three numbers in one tensor."""
    import torch

    both = starts.softmax(dim=0)[:, None] * ends.softmax(dim=0)[None, :]
    score, place = both.triu().tril(LONGEST_ANSWER - 1).flatten().max(dim=0)
    length = starts.shape[0]
    return torch.stack([place.div(length, rounding_mode="floor"), place % length, score])


@functools.cache
def network(device: str, size: str) -> Any:
    """Once per worker: its weights stay on the device."""
    from functions.models.seeded import seeded
    from functions.models.transformer import BertForAnswers

    make = BertForAnswers if size == "base" else lambda: BertForAnswers(1000, LONGEST, 64, 2, 4)
    return seeded(make, 11).eval().to(device)


@app.function
def near(question: str = QUESTION, text: str = TEXT) -> dict[str, Any]:
    """A question answered beside the device."""
    return run(beside(), question, text)


@app.function(attach="fabric")
def fabric(question: str = QUESTION, text: str = TEXT) -> dict[str, Any]:
    """A question answered by a remote device."""
    return run(remote(), question, text)
