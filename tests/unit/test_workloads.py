"""The sample workloads on the CPU: right where right can be told, the same each time, strict about their input."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import torch

from functions.workloads import bert_qa, ct_scan, face_detection, face_identification, kmeans, resnet50
from functions.workloads.words import tokens_of

CPU = torch.device("cpu")


def test_kmeans_finds_the_hidden_groups():
    told = kmeans.run(CPU, 2000, 8, 4, 20, 1)
    assert sum(told["sizes"]) == 2000 and len(told["centres"]) == 4
    assert told["inertia"] / 2000 < 600, "points are near their centres"
    assert json.dumps(told) == json.dumps(kmeans.run(CPU, 2000, 8, 4, 20, 1))


def test_a_scan_is_judged():
    told = ct_scan.run(CPU, 6, 16, 0)
    assert told["label"] in ct_scan.LABELS and sum(told["scores"].values()) == pytest.approx(1)
    assert told != ct_scan.run(CPU, 6, 16, 1)


def test_faces_found_do_not_cover_each_other():
    told = face_detection.run(CPU, 5, 64, 0.0, 0)
    assert 1 <= told["found"] <= face_detection.CANDIDATES
    boxes = torch.tensor([face["box"] for face in told["faces"]])
    low = torch.maximum(boxes[:, None, :2], boxes[None, :, :2])
    high = torch.minimum(boxes[:, None, 2:], boxes[None, :, 2:])
    shared = (high - low).clamp(min=0).prod(dim=2)
    area = (boxes[:, 2:] - boxes[:, :2]).prod(dim=1)
    overlap = shared / (area[:, None] + area[None, :] - shared).clamp(min=1e-9)
    assert overlap.fill_diagonal_(0).max() <= face_detection.OVERLAP + 1e-6


@pytest.mark.parametrize("person", [0, 3, 7])
def test_a_disturbed_face_is_known_again(person):
    assert face_identification.run(CPU, person, 8, 0.2, person)["right"]


def test_an_answer_is_a_piece_of_the_text():
    told = bert_qa.run(CPU, "Who?", "Somebody was here, long before us.", "tiny")
    assert told["answer"] == "Somebody was here, long before us."[told["begin"] : told["end"]]
    assert 0 < told["score"] <= 1


def test_long_words_are_cut_and_case_does_not_matter():
    first, second = tokens_of("Extraordinary", 1000), tokens_of("EXTRAORDINARY", 1000)
    assert [t.number for t in first] == [t.number for t in second] and len(first) == 3
    assert [t.begin for t in tokens_of("a b, c", 1000)] == [0, 2, 3, 5]


def test_pictures_get_five_classes_each():
    told = resnet50.run(CPU, 2, 32, 0)["pictures"]
    assert [len(row) for row in told] == [5, 5]
    scores = [item["score"] for item in told[0]]
    assert scores == sorted(scores, reverse=True)


@pytest.mark.parametrize(
    ("run", "arguments", "told"),
    [
        (kmeans.run, (5, 2, 6, 1, 0), "more clusters than points"),
        (kmeans.run, (0, 2, 1, 1, 0), "count must be from 1"),
        (ct_scan.run, (6, 17, 0), "multiple of 16"),
        (face_detection.run, (5, 33, 0.5, 0), "multiple of 32"),
        (face_identification.run, (8, 8, 0.1, 0), "one of them"),
        (resnet50.run, (0, 224, 0), "batch must be"),
    ],
)
def test_wrong_input_is_told(run, arguments, told):
    with pytest.raises(ValueError, match=told):
        run(CPU, *arguments)


@pytest.mark.parametrize("module", [kmeans, ct_scan, face_detection, face_identification, bert_qa, resnet50])
def test_each_is_offered_near_and_over_the_fabric(module):
    name = module.__name__.rpartition(".")[2]
    near, fabric = module.app.functions[f"{name}.near"], module.app.functions[f"{name}.fabric"]
    assert (near.options.attach, fabric.options.attach) == ("near", "fabric")


def test_workloads_can_be_imported_without_torch():
    names = ["kmeans", "ct_scan", "face_detection", "face_identification", "bert_qa", "resnet50"]
    code = (
        "".join(f"import functions.workloads.{name}\n" for name in names)
        + "import sys; assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
