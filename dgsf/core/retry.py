"""Whether a call that did not succeed is tried again."""

from __future__ import annotations

from dgsf import errors

# The function itself went wrong, or the part that ran it was lost: another attempt may end well.
_WORTH_ANOTHER = frozenset(
    kind.code
    for kind in (
        errors.FunctionError,
        errors.WorkerCrashed,
        errors.OutOfMemory,
        errors.FunctionTimeout,
        errors.OutcomeUnknown,
        errors.LeaseLost,
        errors.ConnectionLost,
    )
)


def try_again(code: str, attempt: int, retries: int) -> bool:
    """`retries` is how many attempts may follow the first one."""
    return attempt <= retries and code in _WORTH_ANOTHER
