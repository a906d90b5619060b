-- name: grant_lease
-- See the function of this name: lock the device, check slots, bytes and the node's processors, take the lowest free
-- slot.
SELECT slot, epoch, device_incarnation FROM grant_lease($1, $2, $3, $4, $5, $6, make_interval(secs => $7::float8), $8)

-- name: renew_leases
-- All the leases that a holder knows of, at once; what it has lost sight of is left to expire. One that has
-- expired but was not taken over is held again: until its epoch rises nobody else has the slot. Rows are locked
-- in order, so two sweeps never wait in a circle.
UPDATE leases l SET expires_at = clock_timestamp() + make_interval(secs => $3::float8)
FROM (SELECT device_id, slot FROM leases WHERE holder = $1 AND holder_incarnation = $2
        AND (device_id, slot, epoch) IN (SELECT * FROM unnest($4::bigint[], $5::int[], $6::bigint[]))
      ORDER BY device_id, slot FOR UPDATE) mine
WHERE l.device_id = mine.device_id AND l.slot = mine.slot AND l.holder = $1 AND l.holder_incarnation = $2
RETURNING l.device_id, l.slot, l.epoch, l.device_incarnation

-- name: release_lease
-- Given back by its holder, whose work in the slot has stopped.
UPDATE leases SET holder = NULL, holder_incarnation = NULL, granted_at = NULL, expires_at = NULL, epoch = epoch + 1
WHERE device_id = $1 AND slot = $2 AND epoch = $3 AND holder = $4
RETURNING epoch

-- name: take_over_lease
-- The old worker is dead and reaped. Only while the epoch is the one it ran under, and only what has
-- expired by Postgres' clock or belongs to an earlier life of the asking holder.
UPDATE leases SET holder = NULL, holder_incarnation = NULL, granted_at = NULL, expires_at = NULL, epoch = epoch + 1
WHERE device_id = $1 AND slot = $2 AND epoch = $3 AND holder IS NOT NULL
  AND (expires_at < clock_timestamp() OR (holder = $4::text AND holder_incarnation < $5::bigint))
RETURNING epoch

-- name: reclaimable_leases
-- What may be taken over, after its worker is killed: expired, or of an earlier life of this holder.
SELECT l.device_id, l.slot, l.epoch, l.device_incarnation, d.name AS device_name, l.holder, l.holder_incarnation,
       l.version_id, f.name AS function_name, l.tenant_id, t.name AS tenant_name, l.memory_bytes,
       l.cpu_milli, l.granted_at, l.expires_at, l.expires_at < clock_timestamp() AS expired,
       extract(epoch FROM clock_timestamp() - l.granted_at)::float8 AS held_s
FROM leases l JOIN devices d ON d.id = l.device_id
LEFT JOIN function_versions v ON v.id = l.version_id LEFT JOIN functions f ON f.id = v.function_id
LEFT JOIN tenants t ON t.id = l.tenant_id
WHERE l.holder IS NOT NULL AND ($1::bigint IS NULL OR l.device_id = $1)
  AND (l.expires_at < clock_timestamp() OR (l.holder = $2 AND l.holder_incarnation < $3))
ORDER BY l.device_id, l.slot

-- name: list_leases
-- Who holds what now.
SELECT l.device_id, l.slot, l.epoch, l.device_incarnation, d.name AS device_name, l.holder, l.holder_incarnation,
       l.version_id, f.name AS function_name, l.tenant_id, t.name AS tenant_name, l.memory_bytes,
       l.cpu_milli, l.granted_at, l.expires_at, l.expires_at < clock_timestamp() AS expired,
       extract(epoch FROM clock_timestamp() - l.granted_at)::float8 AS held_s
FROM leases l JOIN devices d ON d.id = l.device_id
LEFT JOIN function_versions v ON v.id = l.version_id LEFT JOIN functions f ON f.id = v.function_id
LEFT JOIN tenants t ON t.id = l.tenant_id
WHERE l.holder IS NOT NULL AND ($1::bigint IS NULL OR l.tenant_id = $1)
ORDER BY l.device_id, l.slot
