-- name: create_tenant
-- Get or create; the no-op update makes the row of an earlier one come back too.
INSERT INTO tenants AS t (name) VALUES ($1) ON CONFLICT (name) DO UPDATE SET name = t.name RETURNING id

-- name: create_account
-- Every tenant has one account from its first moment: a charge without one would fail.
INSERT INTO accounts (tenant_id, name) VALUES ($1, $2) ON CONFLICT (tenant_id) DO NOTHING

-- name: create_key
-- Only the digest is kept; nobody can read the key back.
INSERT INTO api_keys (key_id, tenant_id, role, sha256, name) VALUES ($1, $2, $3, $4, $5)

-- name: find_api_key
-- Revoked ones come back too: the reader decides, and can tell the difference in its log.
SELECT k.key_id, k.tenant_id, t.name AS tenant_name, k.role, k.sha256, k.name, k.created_at, k.revoked_at
FROM api_keys k JOIN tenants t ON t.id = k.tenant_id WHERE k.key_id = $1

-- name: list_api_keys
-- A tenant's keys, oldest first.
SELECT k.key_id, k.tenant_id, t.name AS tenant_name, k.role, k.sha256, k.name, k.created_at, k.revoked_at
FROM api_keys k JOIN tenants t ON t.id = k.tenant_id WHERE k.tenant_id = $1 ORDER BY k.created_at, k.key_id

-- name: revoke_key
-- The tenant is in the condition: a foreign key id looks like an unknown one.
UPDATE api_keys SET revoked_at = clock_timestamp() WHERE tenant_id = $1 AND key_id = $2 AND revoked_at IS NULL
RETURNING key_id

-- name: name_function
-- Makes the name or revives a retired one, and locks its row: two deploys get two numbers.
INSERT INTO functions AS f (tenant_id, name) VALUES ($1, $2)
ON CONFLICT (tenant_id, name) DO UPDATE SET retired_at = NULL RETURNING id

-- name: add_version
-- The number follows the highest one; the function's row lock makes that safe.
INSERT INTO function_versions (function_id, number, digest, metadata, code)
SELECT $1, coalesce(max(number), 0) + 1, $2, $3, $4 FROM function_versions WHERE function_id = $1
RETURNING id, number, created_at

-- name: set_current_version
-- From the commit of this on, new calls take the new version.
UPDATE functions SET current_version_id = $2 WHERE id = $1

-- name: find_function
-- What a call by name gets. The code stays behind: it is large, and only workers need it.
SELECT v.id AS version_id, f.id AS function_id, f.tenant_id, f.name, v.number, v.digest, v.metadata, v.created_at
FROM functions f JOIN function_versions v ON v.id = f.current_version_id
WHERE f.tenant_id = $1 AND f.name = $2 AND f.retired_at IS NULL

-- name: list_functions
-- One page in name order after the last name of the page before.
SELECT v.id AS version_id, f.id AS function_id, f.tenant_id, f.name, v.number, v.digest, v.metadata, v.created_at
FROM functions f JOIN function_versions v ON v.id = f.current_version_id
WHERE f.tenant_id = $1 AND f.name > $2 AND f.retired_at IS NULL
ORDER BY f.name LIMIT $3

-- name: function_names
-- For whoever asked for one that is not there.
SELECT name FROM functions WHERE tenant_id = $1 AND retired_at IS NULL ORDER BY name LIMIT $2

-- name: auto_functions
-- Those whose place the platform chooses, of all tenants.
SELECT v.id AS version_id, f.id AS function_id, f.tenant_id, f.name, v.number, v.digest, v.metadata, v.created_at
FROM functions f JOIN function_versions v ON v.id = f.current_version_id
WHERE f.retired_at IS NULL AND v.metadata -> 'options' ->> 'attach' = 'auto' ORDER BY v.id

-- name: lock_current_version
-- Fails to find it if another version has been deployed, or the function retired, meanwhile.
SELECT id FROM functions WHERE current_version_id = $1 AND retired_at IS NULL FOR UPDATE

-- name: copy_version
-- The same code in another place; the function's row is locked.
INSERT INTO function_versions (function_id, number, digest, metadata, code)
SELECT o.function_id, (SELECT max(number) + 1 FROM function_versions WHERE function_id = o.function_id), o.digest,
       o.metadata || jsonb_build_object('attach', $2::text), o.code
FROM function_versions o WHERE o.id = $1
RETURNING id, number

-- name: retire_function
-- The name answers 404 from now on; versions and charges stay.
UPDATE functions SET retired_at = clock_timestamp() WHERE tenant_id = $1 AND name = $2 AND retired_at IS NULL
RETURNING id

-- name: find_version
-- A version by its id, also an old one or one of a retired function: calls may still run it.
SELECT v.id AS version_id, f.id AS function_id, f.tenant_id, f.name, v.number, v.digest, v.metadata, v.created_at
FROM function_versions v JOIN functions f ON f.id = v.function_id WHERE v.id = $1

-- name: code_of
-- The opaque bytes that only workers open.
SELECT code FROM function_versions WHERE id = $1

-- name: meta_version
-- What caches poll each second, in case a notification was missed.
SELECT version FROM meta

-- name: touch_meta
-- Raises the version and notifies; last in its transaction, because its row lock is shared by all.
SELECT touch_meta()
