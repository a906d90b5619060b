"""The fabric: devices, the processes that own them, and the controller that keeps them alive.

The only package that imports ray, and only in ray_cluster.py and ray_start.py.  Ray starts and ends device
servers; calls never pass through it.
"""
