"""Six workloads after the DGSF paper, each as a plain core `run(device, ...)` and as two functions.

`<name>.near` runs beside its device; `<name>.fabric` runs on a function host and reaches its device through
a session.  The two give equal results.  Weights are random but seeded; nothing is downloaded.

    dgsf deploy functions/workloads/kmeans.py
    dgsf invoke kmeans.fabric '{"clusters": 4}'
"""
