-- name: register_device
-- A device server has started: the device is new or back, healthy, and of a higher incarnation.
INSERT INTO devices AS d (name, node, kind, type, memory_bytes, slots, speed, price_nano_per_us, state,
                          host_id, unix_path, tcp_host, tcp_port, info)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, 'healthy', $9, $10, $11, $12, $13)
ON CONFLICT (name) DO UPDATE SET
    node = excluded.node, kind = excluded.kind, type = excluded.type, memory_bytes = excluded.memory_bytes,
    slots = excluded.slots, speed = excluded.speed, price_nano_per_us = excluded.price_nano_per_us,
    state = excluded.state, host_id = excluded.host_id, unix_path = excluded.unix_path,
    tcp_host = excluded.tcp_host, tcp_port = excluded.tcp_port, info = excluded.info,
    incarnation = d.incarnation + 1, heartbeat_at = clock_timestamp(), forgotten_at = NULL
RETURNING id, name, node, kind, type, memory_bytes, slots, speed, price_nano_per_us, state, incarnation,
          host_id, unix_path, tcp_host, tcp_port, info, heartbeat_at

-- name: list_devices
-- The whole pool, in a stable order; without lost devices that were forgotten.
SELECT id, name, node, kind, type, memory_bytes, slots, speed, price_nano_per_us, state, incarnation,
       host_id, unix_path, tcp_host, tcp_port, info, heartbeat_at
FROM devices WHERE forgotten_at IS NULL ORDER BY id

-- name: beat_devices
-- Locks in id order, so that two beats and a grant never wait for each other in a circle.
UPDATE devices SET heartbeat_at = clock_timestamp()
WHERE id IN (SELECT id FROM devices WHERE id = ANY($1::bigint[]) ORDER BY id FOR NO KEY UPDATE)

-- name: write_round_trips
-- What a proxy measured to each device, kept in its info under the proxy's number; a new life of a device begins
-- without. Locks in id order, as beats do.
UPDATE devices d
SET info = jsonb_set(d.info, '{round_trips}', coalesce(d.info -> 'round_trips', '{}') || jsonb_build_object($1::text, m.found))
FROM (SELECT id FROM devices WHERE id = ANY($2::bigint[]) ORDER BY id FOR NO KEY UPDATE) locked
JOIN unnest($2::bigint[], $3::bigint[], $4::jsonb[]) AS m (id, incarnation, found) ON m.id = locked.id
WHERE d.id = m.id AND d.incarnation = m.incarnation

-- name: set_device_state
-- Only of the incarnation that the caller judged; a device that has come back since is left alone. An operator's
-- drain outlasts what heartbeats say of a device; only its loss or a restore ends it.
UPDATE devices SET state = CASE WHEN state = 'draining' AND $3 IN ('healthy', 'suspect') THEN state ELSE $3 END
WHERE id = $1 AND incarnation = $2 RETURNING id

-- name: drain_device
-- An operator takes it out of use; what runs on it goes on.
UPDATE devices SET state = 'draining' WHERE id = $1 AND state NOT IN ('lost', 'failed')
RETURNING id, name, node, kind, type, memory_bytes, slots, speed, price_nano_per_us, state, incarnation,
          host_id, unix_path, tcp_host, tcp_port, info, heartbeat_at

-- name: restore_device
-- And back. Should it not be well, its next heartbeat says so.
UPDATE devices SET state = 'healthy' WHERE id = $1 AND state = 'draining'
RETURNING id, name, node, kind, type, memory_bytes, slots, speed, price_nano_per_us, state, incarnation,
          host_id, unix_path, tcp_host, tcp_port, info, heartbeat_at

-- name: forget_device
-- A lost device leaves the listing until it registers again.
UPDATE devices SET forgotten_at = clock_timestamp() WHERE id = $1 AND state = 'lost'
RETURNING id, name, node, kind, type, memory_bytes, slots, speed, price_nano_per_us, state, incarnation,
          host_id, unix_path, tcp_host, tcp_port, info, heartbeat_at

-- name: lose_device
-- The incarnation rises with the loss: whatever the old server still answers is refused from now on.
UPDATE devices SET state = 'lost', incarnation = incarnation + 1 WHERE id = $1 AND incarnation = $2 RETURNING id

-- name: free_device_leases
-- The processes of an old incarnation are gone or refused. Rows are locked in slot order, as in renewals.
UPDATE leases l SET holder = NULL, holder_incarnation = NULL, granted_at = NULL, expires_at = NULL,
    epoch = l.epoch + 1
FROM (SELECT device_id, slot FROM leases WHERE device_id = $1 AND holder IS NOT NULL
      ORDER BY device_id, slot FOR UPDATE) held
WHERE l.device_id = held.device_id AND l.slot = held.slot AND l.holder IS NOT NULL
