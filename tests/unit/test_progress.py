"""What the person who started the platform sees, and what happens when nobody looks any more."""

import subprocess
import sys

SOURCE = """
from dgsf.supervisor.progress import Progress
progress = Progress()
said = []
{before}
progress.when_closed(lambda: said.append("closed"))
with progress.step("ray"):
    progress.say("one")
progress.say("two")
print(said)
"""


def closed_output(before=""):
    """The program's words when its standard error has no reader."""
    words = f"import sys\n{SOURCE.format(before=before)}"
    process = subprocess.Popen(
        [sys.executable, "-u", "-c", words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    process.stderr.close()
    out, code = process.stdout.read(), process.wait(60)
    process.stdout.close()
    return code, out


def test_an_output_that_closes_is_told_once_and_ends_nothing():
    assert closed_output() == (0, "['closed']\n")


def test_one_that_had_closed_before_is_told_at_once():
    assert closed_output("progress.say('zero')") == (0, "['closed']\n")
