"""A packed function runs in a process that has none of the user's files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import cloudpickle
import msgspec
import pytest
from sdk_platform import ROOT, run_in_worker

from dgsf.errors import FunctionLoadError, UsageError
from dgsf.sdk import bundle, place
from dgsf.sdk.codec import PICKLE, dump_arguments
from dgsf.sdk.loadfile import functions_in, load_file, pick
from dgsf.sdk.unbundle import Packed, load_function


@pytest.fixture
def project(tmp_path, monkeypatch):
    """Writes files of a project and makes them importable; forgets their modules afterwards."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)

    def write(**files: str) -> Path:
        for name, text in files.items():
            path = tmp_path / (name.replace("__in__", "/") + ".py")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(textwrap.dedent(text))
        return tmp_path

    yield write
    for name in set(sys.modules) - before:
        module = sys.modules[name]
        if str(getattr(module, "__file__", "")).startswith(str(tmp_path)) or name.startswith("proj"):
            del sys.modules[name]


def call(function, *args):
    packed = function.bundle()
    answer = run_in_worker(packed.code, PICKLE, dump_arguments(args, {}))
    if "problem" in answer:
        raise AssertionError(answer["problem"])
    return cloudpickle.loads(answer["body"])


def load(folder: Path, name: str, function: str):
    return pick(functions_in(load_file(folder / name)), function, name)


def modules_of(function) -> set[str]:
    return set(msgspec.msgpack.decode(function.bundle().code, type=Packed).modules)


APP = "import dgsf\napp = dgsf.App('proj')\n"


def test_a_file_takes_the_modules_it_imports_along(project):
    folder = project(
        proj_main=APP + "import proj_helper\n@app.function\ndef go(x): return proj_helper.double(x)\n",
        proj_helper="from proj_deep import two\ndef double(x): return two * x\n",
        proj_deep="two = 2\n",
        proj_unrelated="raise SystemExit('never imported')\n",
    )
    go = load(folder, "proj_main.py", "go")
    assert call(go, 21) == 42
    assert modules_of(go) == {"proj_main", "proj_helper", "proj_deep"}


def test_modules_imported_inside_the_function_travel_without_being_loaded_here(project):
    folder = project(
        proj_late=APP + "@app.function\ndef go():\n    from proj_lazy import value\n    return value\n",
        proj_lazy="value = 7\n",
    )
    go = load(folder, "proj_late.py", "go")
    assert call(go) == 7
    assert "proj_lazy" not in sys.modules


def test_a_package_travels_whole_with_relative_imports_and_plug_ins(project):
    folder = project(
        proj_pack__in____init__="",
        proj_pack__in__main=APP
        + """
from importlib import import_module
from . import base
from .sub.inner import ten
@app.function
def go(name): return import_module(f'proj_pack.plugins.{name}').value + base.one + ten
""",
        proj_pack__in__base="one = 1\n",
        proj_pack__in__sub__in____init__="",
        proj_pack__in__sub__in__inner="from ..base import one\nten = one * 10\n",
        proj_pack__in__plugins__in____init__="",
        proj_pack__in__plugins__in__red="value = 100\n",
    )
    go = load(folder, "proj_pack/main.py", "go")
    assert go.raw.__module__ == "proj_pack.main"
    assert call(go, "red") == 111


def test_a_folder_without_init_is_a_package_too(project):
    folder = project(
        proj_space__in__thing="value = 3\n",
        proj_user=APP + "from proj_space import thing\n@app.function\ndef go(): return thing.value\n",
    )
    assert call(load(folder, "proj_user.py", "go")) == 3


def test_installed_and_platform_modules_stay_behind(project):
    folder = project(
        proj_libs=APP + "import numpy, json, click, dgsf.errors\n@app.function\ndef go(): return numpy.sqrt(4.0)\n"
    )
    go = load(folder, "proj_libs.py", "go")
    assert modules_of(go) == {"proj_libs"}
    assert call(go) == 2.0


def test_a_missing_package_is_named(project):
    folder = project(proj_gone=APP + "@app.function\ndef go(): return 1\n")
    go = load(folder, "proj_gone.py", "go")
    packed = msgspec.msgpack.decode(go.bundle().code)
    packed["modules"]["proj_gone"]["source"] = "import pandas_of_nowhere\n"
    answer = run_in_worker(msgspec.msgpack.encode(packed), PICKLE, dump_arguments((), {}))
    assert answer["problem"]["code"] == "function_load_error"
    assert "No module named 'pandas_of_nowhere'" in answer["problem"]["detail"]
    assert "not installed on the workers" in answer["problem"]["detail"]


def test_damaged_code_bytes_are_a_load_error(monkeypatch):
    monkeypatch.setattr(place, "_in_worker", False)  # loading makes a worker of this process: put back after
    for data in (b"", b"\x00", b"garbage", msgspec.msgpack.encode({"modules": {}, "function": b"no pickle"})):
        with pytest.raises(FunctionLoadError):
            load_function(data)


SCRIPT = """
import json, sys
import dgsf
import proj_side
app = dgsf.App("script")
class Own(Exception): pass
FACTOR = 3
@app.function(timeout=5)
def go(n):
    if n == 0: raise Own("zero")
    return FACTOR * proj_side.shift(n) + (go.local(n - 1) if n > 1 else 0)
bundle = go.bundle()
sys.stdout.buffer.write(bundle.code)
"""


def test_a_function_of_the_main_script_goes_by_value(project):
    folder = project(proj_script=SCRIPT, proj_side="def shift(n): return n + 100\n")
    codes = [
        subprocess.run(
            [sys.executable, str(folder / "proj_script.py")],
            env={"PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"], "PYTHONHASHSEED": seed},
            stdout=subprocess.PIPE,
            timeout=100,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    answer = run_in_worker(codes[0], PICKLE, dump_arguments((2,), {}))
    assert cloudpickle.loads(answer["body"]) == 3 * 102 + 3 * 101
    assert set(msgspec.msgpack.decode(codes[0])["modules"]) == {"proj_side"}
    failed = run_in_worker(codes[0], PICKLE, dump_arguments((0,), {}))
    assert failed["problem"]["error"]["type"] == "__main__.Own"
    assert failed["problem"]["error"]["frames"][-1]["name"] == "go"


def test_the_same_file_gives_the_same_digest_in_every_process(project):
    folder = project(proj_same=APP + "import json\n@app.function\ndef go(x): return x in {'a', 'b', 'c'}\n")
    text = (
        "from dgsf.sdk.loadfile import *; import json\n"
        f"print(next(iter(functions_in(load_file({str(folder / 'proj_same.py')!r})).values())).bundle().digest)"
    )
    digests = {
        subprocess.run(
            [sys.executable, "-c", text],
            env={"PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"], "PYTHONHASHSEED": seed},
            stdout=subprocess.PIPE,
            timeout=100,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(digests) == 1


def test_tracebacks_in_the_worker_show_the_users_lines(project):
    folder = project(proj_trace=APP + "@app.function\ndef go():\n    raise ValueError('here')  # this line\n")
    answer = run_in_worker(load(folder, "proj_trace.py", "go").bundle().code, PICKLE, dump_arguments((), {}))
    error = answer["problem"]["error"]
    assert error["frames"][-1] == {
        "file": str(folder / "proj_trace.py"),
        "line": 5,
        "name": "go",
        "code": "raise ValueError('here')  # this line",
    }
    assert "raise ValueError('here')  # this line" in error["traceback"]


def test_variants_share_the_code_of_their_function(project):
    folder = project(proj_var=APP + "@app.function\ndef go(x): return x + 1\n")
    go = load(folder, "proj_var.py", "go")
    other = go.with_options(timeout=99)
    assert other.bundle().digest == go.bundle().digest
    assert call(other, 1) == 2


def test_too_much_source_names_the_largest_modules(project, monkeypatch):
    monkeypatch.setattr(bundle, "MAX_SOURCE_BYTES", 5000)
    folder = project(proj_big=APP + "import proj_huge\n@app.function\ndef go(): return 1\n", proj_huge="x = 1\n" * 2000)
    with pytest.raises(UsageError, match=r"proj_huge \(11 KiB\)"):
        load(folder, "proj_big.py", "go").bundle()


def test_of_a_large_package_only_what_is_imported_travels(project, monkeypatch):
    monkeypatch.setattr(bundle, "MAX_SOURCE_BYTES", 5000)
    folder = project(
        proj_lib__in____init__="",
        proj_lib__in__used="v = 1\n",
        proj_lib__in__unused="x = 1\n" * 2000,
        proj_uses=APP + "from proj_lib.used import v\n@app.function\ndef go(): return v\n",
    )
    go = load(folder, "proj_uses.py", "go")
    assert modules_of(go) == {"proj_lib", "proj_lib.used", "proj_uses"}
    assert call(go) == 1


def test_large_data_in_the_function_is_refused_with_a_hint(monkeypatch):
    monkeypatch.setattr(bundle, "MAX_CODE_BYTES", 1000)
    data = os.urandom(2000)
    with pytest.raises(UsageError, match="limit is 0 KiB; does it hold large data"):
        bundle.pack(lambda: data)


def test_what_cannot_be_pickled_is_named():
    import threading

    lock = threading.Lock()
    with pytest.raises(UsageError, match="it uses 'lock' of type lock"):
        bundle.pack(lambda: lock)


def test_files_that_cannot_be_loaded_say_where(project):
    folder = project(proj_broken="x = 1\n1 / 0\n", proj_syntax="def (:\n", json="")
    with pytest.raises(UsageError, match=r"ZeroDivisionError: division by zero \(line 2\)"):
        load_file(folder / "proj_broken.py")
    with pytest.raises(UsageError, match=r"SyntaxError: [^(]*\(proj_syntax.py, line 1\)$"):
        load_file(folder / "proj_syntax.py")
    with pytest.raises(UsageError, match="rename the file"):
        load_file(folder / "json.py")
    with pytest.raises(UsageError, match="there is no file"):
        load_file(folder / "nothing.py")
    assert json.dumps(1) == "1"
