"""Short turns are asked of the kernel for one process, which otherwise stays as it was."""

import subprocess
import sys

_PROGRAM = """
import os
from dgsf.turns import ask_for_short_turns
before = os.sched_getscheduler(0), os.nice(0)
done = ask_for_short_turns()
print(done, before == (os.sched_getscheduler(0), os.nice(0)))
print([line.split()[-1] for line in open("/proc/self/sched") if line.startswith("se.slice")])
"""


def test_a_process_asks_for_short_turns_and_keeps_its_priority():
    told = subprocess.run([sys.executable, "-c", _PROGRAM], check=True, capture_output=True, text=True).stdout.split()
    assert told[1] == "True"
    if told[0] == "True" and told[2] != "[]":  # a kernel that knows of turns and tells them
        assert told[2] == "['100000']"


def test_one_that_has_a_lower_priority_keeps_it():
    program = "import os; os.nice(5)" + _PROGRAM
    told = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout.split()
    assert told[1] == "True"
