"""What a simulation reads: pools, drawn workloads, traces; and what it says when they are wrong."""

from __future__ import annotations

import pytest

from dgsf.errors import TraceError, UsageError
from dgsf.sim.devicetypes import DeviceType
from dgsf.sim.pools import load_pool, parse_pool
from dgsf.sim.synthetic import Synthetic, draw
from dgsf.sim.traces import COLUMNS, Source, kind_of, read_source, read_trace
from dgsf.sim.workload import FunctionSpec, Workload


# --- pools ------------------------------------------------------------------------------------
def test_a_short_text_makes_nodes():
    pool = parse_pool("A100:10,T4:3x4@96")
    assert [(node.type, node.devices) for node in pool.nodes] == [("A100", 8), ("A100", 2)] + [("T4", 4)] * 3
    assert pool.devices == 22
    assert pool.nodes[2].cpu_milli == 96_000
    assert len({node.name for node in pool.nodes}) == 5
    assert pool.figures("a100").speed > pool.figures("t4").speed


def test_a_type_that_is_not_known_brings_its_figures_or_is_refused():
    with pytest.raises(
        UsageError, match=r"'B200' no figures are known; known are A10, A100, .* as in B200=192/10/6.50:8"
    ):
        parse_pool("T4:8,B200:8")
    pool = parse_pool("T4:8,B200=192/10/6.50:2x4@96,b200:1")
    assert [pool.figures(name) for name in ("b200", "B200")] == [DeviceType(192 * 1024, 10.0, 6.5)] * 2
    assert (pool.devices, pool.assumed, parse_pool("t4=32/2/1:1").figures("T4").speed) == (17, [], 2.0)
    for wrong in ("192", "192/10", "0/1/1", "1/0/1", "1//1", "1/1/1/1", "1/1/9999999", "." * 200 + "/1/1"):
        with pytest.raises(UsageError, match="GiB / speed beside a T4 / price per hour"):
            parse_pool(f"B200={wrong}:8")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("B200=192/10/x:8", "B200=192/10/x: the PRICE 'x' is no number from 0 up to 1,000,000; "),
        ("B200=192/fast/1:8", "the SPEED 'fast' is no number above 0"),
        ("B200=nan/10/1:8", "the GiB 'nan' is no number above 0"),
        ("B200=192/10:8", "B200=192/10: 2 of 3 figures; "),
        ("B200=192/10/1/1:8", "too many figures; "),
        ("B200=192/10/6.50", "'B200=192/10/6.50' is no group of devices, the number of DEVICES is missing; "),
        ("A100:many", "'many' is no number of DEVICES; "),
        (":4", "the TYPE is missing; "),
        ("4:T4", "'4' is no TYPE; "),
    ],
)
def test_the_part_of_a_group_that_is_wrong_is_named_and_so_is_the_form(words, told):
    with pytest.raises(UsageError) as caught:
        parse_pool(words)
    assert told in str(caught.value) and "TYPE=GiB/SPEED/PRICE:DEVICES" in str(caught.value)


def test_types_of_a_file_that_are_not_known_count_as_a_t4_and_are_named(tmp_path):
    file = tmp_path / "nodes.csv"
    file.write_text("sn,cpu_milli,memory_mib,gpu,model\na,64000,1000,2,G3\nb,64000,1000,2,t4\nc,1,1,0,none\n")
    pool = load_pool(str(file))
    assert pool.assumed == ["G3"] and pool.figures("G3") == pool.figures("T4")


def test_a_type_that_means_something_else_to_placement_is_refused(tmp_path):
    for name in ("host", "HOST", "any"):
        with pytest.raises(UsageError, match=f"--pool: no device type can be called '{name}'"):
            parse_pool(f"{name}=1/1/1:4")
    file = tmp_path / "nodes.csv"
    file.write_text("sn,cpu_milli,memory_mib,gpu,model\na,64000,1000,2,host\n")
    with pytest.raises(TraceError, match=r"nodes\.csv: line 2, column 5 'model': 'host' is no device type"):
        load_pool(str(file))


def test_a_type_has_one_set_of_figures():
    with pytest.raises(UsageError, match=r"--pool: B200 is 192 GiB, .* and 1 GiB, .*; give its figures once"):
        parse_pool("B200=192/10/6:4,b200=1/1/1:4")
    assert parse_pool("B200=192/10/6:4,b200=192/10/6.0:4").devices == 8


def test_a_pool_that_takes_more_memory_than_its_devices_are_worth_is_refused():
    with pytest.raises(UsageError, match=r"20,001 nodes beside one of 20,000 devices"):
        parse_pool("T4:1x20000,A10:20000x1")
    assert parse_pool("T4:1x20000").devices == 20_000


@pytest.mark.parametrize(
    "words",
    ["", "A100", "A100:", "A100:0", "A100:x8", "A100:-1", "A100:2000000", ":4", "T4:4,",
     "T4:8@99999999999999999999", "T4:" + "9" * 5000, "T4:1000000x1000000", "T4:٣"],
)  # fmt: skip
def test_a_wrong_pool_is_told(words):
    with pytest.raises(UsageError, match="--pool") as caught:
        parse_pool(words)
    assert len(str(caught.value)) < 300


def test_a_pool_comes_from_a_csv_file(tmp_path):
    file = tmp_path / "nodes.csv"
    file.write_text("sn,cpu_milli,memory_mib,gpu,model\na,64000,1000,2,T4\nb,32000,1000,0,\n")
    pool = load_pool(str(file))
    assert pool.devices == 2 and len(pool.nodes) == 2
    file.write_text("sn,cpu_milli,memory_mib,gpu,model\na,64000,1000,two,T4\n")
    with pytest.raises(TraceError, match=r"nodes\.csv: line 2, column 4 'gpu': 'two'"):
        load_pool(str(file))
    file.write_text("sn,cpu_milli,memory_mib,gpu,model\na,64000,1000,0,\n")
    with pytest.raises(TraceError, match="no node with a device"):
        load_pool(str(file))


@pytest.mark.parametrize(
    ("row", "hint"),
    [
        ("n,9007199254740992,1,1,T4", "line 3, column 2 'cpu_milli': '9007199254740992' is not a whole number from 1"),
        ("n,1,9007199254740992,1,T4", "line 3, column 3 'memory_mib': '9007199254740992' is not a whole number from 1"),
        ("a,1,1,1,T4", "line 3, column 1 'sn': 'a' is in line 2 already"),
        ("n,1,1,2,", "line 3, column 5 'model': is empty beside 2 devices; name their type"),
        ("n,1,1,2, T 4", "line 3, column 5 'model': 'T 4' is no device type"),
        ("n,1,1,2,T4|A100", r"line 3, column 5 'model': 'T4\|A100' is no device type"),
        ("  ,1,1,2,T4", "line 3, column 1 'sn': '' is empty"),
    ],
)
def test_a_wrong_node_is_named(tmp_path, row, hint):
    file = tmp_path / "nodes.csv"
    file.write_text(f"sn,cpu_milli,memory_mib,gpu,model\na,64000,1000,2,T4\n{row}\n")
    with pytest.raises(TraceError, match=r"nodes\.csv: " + hint):
        load_pool(str(file))


def test_spaces_around_a_type_do_not_count(tmp_path):
    (tmp_path / "nodes.csv").write_text("sn, cpu_milli, memory_mib, gpu, model\na, 64000, 1000, 2, T4 \n")
    assert [node.type for node in load_pool(str(tmp_path / "nodes.csv")).nodes] == ["T4"]


# --- drawn workloads --------------------------------------------------------------------------
def test_the_same_seed_draws_the_same_calls():
    wanted = Synthetic(calls=500, burst=4.0, seed=7)
    assert draw(wanted) == draw(wanted)
    assert draw(wanted) != draw(Synthetic(calls=500, burst=4.0, seed=8))


@pytest.mark.parametrize("burst", [1.0, 50.0])
def test_drawn_calls_begin_with_the_first(burst):
    workload = draw(Synthetic(calls=100, burst=burst, burst_s=600.0, seed=1))
    assert workload.arrival_s[0] == 0.0


@pytest.mark.parametrize("burst", [1.0, 5.0])
def test_bursts_keep_the_mean_rate(burst):
    workload = draw(Synthetic(calls=50_000, rate_per_s=10.0, burst=burst, burst_s=5.0, seed=3))
    assert workload.calls / workload.span_s == pytest.approx(10.0, rel=0.2)
    assert sum(workload.run_s) / workload.calls == pytest.approx(2.0, rel=0.7)


@pytest.mark.parametrize(
    "wrong", [{"calls": 0}, {"rate_per_s": 0.0}, {"burst": 0.5}, {"duty": 2.0}, {"shares": ()}, {"shares": (0,)}]
)
def test_impossible_numbers_are_told(wrong):
    with pytest.raises(UsageError):
        Synthetic(**wrong)


def test_a_workload_must_be_whole_and_in_order():
    with pytest.raises(UsageError, match="order"):
        Workload("w", [FunctionSpec("f")], ["t"], [2.0, 1.0], [0, 0], [0, 0], [1.0, 1.0])
    with pytest.raises(UsageError, match="length"):
        Workload("w", [FunctionSpec("f")], ["t"], [2.0], [0, 0], [0], [1.0])


def test_a_function_belongs_to_one_tenant():
    with pytest.raises(UsageError, match="workload w: function f is called by tenants t and u; it belongs to one"):
        Workload("w", [FunctionSpec("f")], ["t", "u"], [1.0, 2.0], [0, 0], [0, 1], [1.0, 1.0])


def test_a_workload_is_hurried_and_changed():
    workload = draw(Synthetic(calls=10))
    assert workload.faster(2.0).arrival_s[-1] == workload.arrival_s[-1] / 2
    assert {item.duty for item in workload.changed(duty=0.3).functions} == {0.3}


# --- traces -----------------------------------------------------------------------------------
GENAI = "gmt_create,exec_time_seconds,groupId,checkpoint_model_version_id\n"
AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
OPENB = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,creation_time,deletion_time\n"
TENANTS = "name,tenant,arrival_s,duration_s,gpu_percent\n"


def written(folder, text):
    file = folder / "trace.csv"
    file.write_text(text)
    return file


def test_genai_has_a_function_per_model_whose_users_are_its_groups(tmp_path):
    rows = "2024-01-01 00:00:00,30,G1,M1\n2024-01-01 00:01:00,5,G2,M2\n2024-01-01 00:01:30,7,G2,M1\n"
    workload = read_trace("genai", tmp_path, written(tmp_path, GENAI + rows))
    assert [item.name for item in workload.functions] == ["M1", "M2"]
    assert (workload.arrival_s, workload.function, workload.run_s) == ([0, 60, 90], [0, 1, 0], [30, 5, 7])
    assert (workload.tenants, workload.tenant) == (["genai"], [0, 0, 0])


def test_where_each_group_is_a_tenant_it_has_functions_of_its_own(tmp_path):
    rows = "2024-01-01 00:00:00,30,G1,M1\n2024-01-01 00:01:00,5,G2,M1\n2024-01-01 00:01:30,7,G1,M1\n"
    workload = read_trace("genai", tmp_path, written(tmp_path, GENAI + rows), tenant_per_group=True)
    assert [item.name for item in workload.functions] == ["G1/M1", "G2/M1"]
    assert (workload.tenants, workload.tenant, workload.function) == (["G1", "G2"], [0, 1, 0], [0, 1, 0])


def test_azure_runs_by_tokens(tmp_path):
    rows = "2023-11-16 18:17:03.9799600,8000,0\n2023-11-16 18:17:04.9799600,0,40\n"
    workload = read_trace("azure", tmp_path, written(tmp_path, AZURE + rows))
    assert workload.arrival_s == pytest.approx([0, 1])
    assert workload.run_s == pytest.approx([1.0, 1.0])


def test_openb_has_shares_and_counts(tmp_path):
    rows = "a,4000,100,1,460,,LS,0,10\nb,1000,100,8,1000,V100M16|V100M32,BE,5,9\nc,1000,1,0,0,,BE,6,9\n"
    workload = read_trace("openb", tmp_path, written(tmp_path, OPENB + rows))
    assert [(item.share, item.devices, item.types) for item in workload.functions] == [
        (460, 0, ("any",)), (0, 8, ("V100M16|V100M32",)), (0, 0, ("any",)),
    ]  # fmt: skip
    assert workload.run_s == [10, 4, 3]


def test_no_more_is_read_than_is_wanted(tmp_path):
    """The row that is wrong is never reached."""
    file = written(tmp_path, TENANTS + "a,t0,5,10,20\nb,t1,9,1,75\nc,t1,9,1,a lot\n")
    workload = read_source("tenants", Source(file, most=2))
    assert (workload.calls, [item.name for item in workload.functions]) == (2, ["a", "b"])


def test_of_tasks_in_any_order_the_first_to_come_are_taken(tmp_path):
    rows = "late,0,0,1,500,,LS,30,40\nfirst,0,0,1,500,,LS,0,10\nsecond,0,0,1,500,,BE,5,9\n"
    workload = read_source("openb", Source(written(tmp_path, OPENB + rows), most=2))
    assert [item.name for item in workload.functions] == ["first", "second"]


def test_how_many_rows_are_read_is_told(tmp_path):
    file = written(tmp_path, AZURE + "2024-01-01,1,1\n" * 25_000)
    told: list[int] = []
    read_source("azure", Source(file, tell=told.append))
    assert told == [10_000, 20_000]


def test_tenants_have_parts_of_a_device(tmp_path):
    workload = read_trace("tenants", tmp_path, written(tmp_path, TENANTS + "a,t0,5,10,20\nb,t1,9,1,75\n"))
    assert [item.share for item in workload.functions] == [200, 750]
    assert workload.tenants == ["t0", "t1"]


@pytest.mark.parametrize(
    ("name", "text", "hint"),
    [
        ("genai", GENAI + "yesterday,1,G,M\n", r"line 2, column 1 'gmt_create': 'yesterday' is not a date and time"),
        ("genai", GENAI + "2024-01-02,1,G,M\n2024-01-01,1,G,M\n", r"line 3, column 1 'gmt_create': is earlier"),
        ("tenants", TENANTS + "a,t,5,10,20\n\nb,t,4,10,20\n", r"line 4, column 3 'arrival_s': is earlier"),
        ("genai", GENAI, r"line 2, column 1: expected a row below the header, found nothing"),
        ("tenants", TENANTS + "\n\n", r"line 2, column 1: expected a row"),
        ("azure", AZURE + "2024-01-01,many,1\n", r"line 2, column 2 'ContextTokens': 'many' is not a whole number"),
        ("azure", "TIMESTAMP\n", r"line 1: no column 'ContextTokens'"),
        ("openb", OPENB + "a,4000,100,1,4600,,LS,0,10\n", r"line 2, column 5 'gpu_milli'"),
        ("openb", OPENB + "a,0,0,1,0,,LS,0,10\n", r"line 2, column 5 'gpu_milli': 0 beside num_gpu 1"),
        ("openb", OPENB + "a,0,0,0,700,,LS,0,10\n", r"line 2, column 5 'gpu_milli': 700 beside num_gpu 0"),
        ("openb", OPENB + "a,0,0,2,300,,LS,0,10\n", r"line 2, column 5 'gpu_milli': 300 beside num_gpu 2"),
        ("openb", OPENB + "a,0,9007199254740992,1,500,,LS,0,10\n", r"line 2, column 3 'memory_mib'"),
        (
            "openb",
            OPENB + "a,0,0,1,500, T 4,LS,0,10\n",
            r"line 2, column 6 'gpu_spec': 'T 4' is no device type",
        ),
        ("openb", OPENB + "a,0,0,1,500,|,LS,0,10\n", r"line 2, column 6 'gpu_spec': '\|' is no device type"),
        ("openb", OPENB + "a,0,0,1,500,T4||V100,LS,0,10\n", r"line 2, column 6 'gpu_spec': 'T4\|\|V100' is no"),
        ("openb", OPENB + "a,0,0,1,500,T4|host,LS,0,10\n", r"line 2, column 6 'gpu_spec': 'T4\|host' is no"),
        ("tenants", TENANTS + "a,t,5,10\n", r"line 2: 4 cells .*; column 5 'gpu_percent' is missing"),
        ("tenants", TENANTS + "a,t,5,10,20,30\n", r"line 2: 6 cells where the header has 5; column 6 has no name$"),
        (
            "openb",
            OPENB + "a,4000,100,1,460,,LS,0,10\nb,4000,100,1,460,,LS,20,5\n",
            r"line 3, column 9 'deletion_time': 5 is before creation_time, 20",
        ),
    ],
)
def test_a_malformed_trace_names_file_line_and_column(tmp_path, name, text, hint):
    with pytest.raises(TraceError, match=r"trace\.csv: .*" + hint):
        read_trace(name, tmp_path, written(tmp_path, text))


def test_a_missing_trace_says_where_to_set_the_folder(tmp_path):
    with pytest.raises(TraceError, match="DGSF_TRACES"):
        read_trace("genai", tmp_path)


@pytest.mark.parametrize(
    ("kind", "header"), [("genai", GENAI), ("azure", AZURE), ("openb", OPENB), ("tenants", TENANTS)]
)
def test_a_file_says_by_its_columns_which_kind_it_is(tmp_path, kind, header):
    assert kind_of(written(tmp_path, "more," + header)) == kind


@pytest.mark.parametrize(
    ("header", "kind", "missing"),
    [
        (TENANTS.replace("gpu_percent", "gpu_pct"), "tenants", "'gpu_percent'"),
        (OPENB.replace("qos,", "").replace("gpu_spec", "type"), "openb", "'gpu_spec', 'qos'"),
        (AZURE.lower(), "azure", "'TIMESTAMP', 'ContextTokens', 'GeneratedTokens'"),
    ],
)
def test_a_header_that_is_nearly_right_is_told_what_it_lacks(tmp_path, header, kind, missing):
    hint = f"line 1: looks like a '{kind}' trace, but has no column {missing}; the header has: {header.strip()[:4]}"
    with pytest.raises(TraceError, match=r"trace\.csv: " + hint):
        kind_of(written(tmp_path, header))


def test_a_file_of_two_kinds_or_none_is_told(tmp_path):
    with pytest.raises(TraceError, match="openb and tenants; say which it is with --arrivals"):
        kind_of(written(tmp_path, OPENB.strip() + "," + TENANTS.removeprefix("name,")))
    with pytest.raises(TraceError, match=r"trace\.csv: line 1: no kind of trace") as caught:
        kind_of(written(tmp_path, "when,what\n"))
    assert all(name in str(caught.value) for columns in COLUMNS.values() for name in columns)
