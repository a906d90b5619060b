"""A Ray cluster of two nodes on this machine, in a process of its own; it obeys standard input.

Prints one JSON line with address and nodes, then removes node "b" when told "remove", and ends at the end
of its input.
"""

import json
import os
import shutil
import sys
import tempfile


def main() -> None:
    folder = os.environ["RAY_TMPDIR"] = tempfile.mkdtemp(prefix="dgsf-r-")
    from ray.cluster_utils import Cluster  # looks for that variable when it is imported

    common = {"num_cpus": 0, "num_gpus": 0, "object_store_memory": 80_000_000, "include_log_monitor": False}
    cluster = Cluster()
    try:
        a = cluster.add_node(node_name="a", env_vars={"DGSF_DEVICES": "sim:T4:1", "DGSF_HOSTS": "2"}, **common)
        b = cluster.add_node(node_name="b", env_vars={"DGSF_DEVICES": "sim:A100:1", "DGSF_HOSTS": "0"}, **common)
        cluster.wait_for_nodes()
        told = {"address": cluster.address, "nodes": {"a": a.node_id, "b": b.node_id}}
        print(json.dumps(told), flush=True)
        for line in sys.stdin:
            if line.strip() == "remove":
                cluster.remove_node(b, allow_graceful=False)
                print("removed", flush=True)
    finally:
        cluster.shutdown()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
