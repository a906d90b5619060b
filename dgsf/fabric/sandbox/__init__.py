"""The sandbox around user code: what a worker can see, name, use and do, by the kernel's own means."""

from dgsf.fabric.sandbox.features import Feature, SandboxError

__all__ = ["Feature", "SandboxError", "report"]


def report() -> list[Feature]:
    """What this machine's kernel gives the sandbox, found by building one; for `dgsf doctor`."""
    from dgsf.fabric.sandbox.doctor import examine  # the worker's side never needs it

    return examine()
