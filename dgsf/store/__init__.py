"""What must not be lost, in Postgres: tenants, keys, functions, devices, leases, calls and charges.

Thin asyncpg classes around SQL that is written by hand, named and commented in `sql/queries`.
Nothing here decides anything that is not a matter of the store; decisions live in `dgsf/core`.
"""
