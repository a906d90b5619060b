"""Who is asking, and may they: a key's role against what a route needs."""

from __future__ import annotations

from collections.abc import Mapping

from dgsf.errors import Forbidden, Unauthenticated
from dgsf.store.catalogue import Catalogue, Principal
from dgsf.store.rows import Role
from gateway.headers import bearer

# A role may do all that those below it may.
RANK = {Role.invoke: 0, Role.deploy: 1, Role.operator: 2}
MAX_KEY = 256


async def authenticate(catalogue: Catalogue, headers: Mapping[str, str]) -> Principal:
    """The holder of the key in these headers; Unauthenticated if there is none."""
    text = bearer(headers)
    if len(text) > MAX_KEY:
        raise Unauthenticated
    return catalogue.known_key(text) or await catalogue.find_key(text)


def authorise(principal: Principal, role: Role) -> None:
    if RANK[principal.role] < RANK[role]:
        raise Forbidden(f"this needs a key with the role {role.value}; this key has {principal.role.value}")
