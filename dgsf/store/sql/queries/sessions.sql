-- name: write_sessions
-- How sessions are, as their proxy knows them; the first time makes the row. A session that has ended stays so.
INSERT INTO sessions AS s (id, tenant_id, version_id, proxy, proxy_incarnation, device_id, state, generation,
                           memory_bytes, memory_used, bytes_up, bytes_down, device_us, cost_nano, error_code,
                           started_at, ended_at)
SELECT g.id, g.tenant_id, g.version_id, $1, $2, g.device_id, g.state, g.generation, g.memory_bytes, g.memory_used,
       g.bytes_up, g.bytes_down, g.device_us, g.cost_nano, g.error_code, to_timestamp(g.started_at),
       CASE WHEN g.state = 'ended' THEN clock_timestamp() END
FROM unnest($3::uuid[], $4::bigint[], $5::bigint[], $6::bigint[], $7::text[], $8::int[], $9::bigint[], $10::bigint[],
            $11::bigint[], $12::bigint[], $13::bigint[], $14::bigint[], $15::text[], $16::float8[])
     AS g (id, tenant_id, version_id, device_id, state, generation, memory_bytes, memory_used, bytes_up, bytes_down,
           device_us, cost_nano, error_code, started_at)
ON CONFLICT (id) DO UPDATE SET
    device_id = excluded.device_id, state = excluded.state, generation = excluded.generation,
    memory_used = excluded.memory_used, bytes_up = excluded.bytes_up, bytes_down = excluded.bytes_down,
    device_us = excluded.device_us, cost_nano = excluded.cost_nano, error_code = excluded.error_code,
    updated_at = clock_timestamp(), ended_at = excluded.ended_at
    WHERE s.ended_at IS NULL

-- name: close_old_sessions
-- Those of this proxy's earlier lives: they went with it.
UPDATE sessions SET state = 'ended', ended_at = clock_timestamp(), error_code = coalesce(error_code, 'session_lost')
WHERE proxy = $1 AND proxy_incarnation < $2 AND ended_at IS NULL

-- name: list_sessions
-- Open ones, and with $2 also the last that ended; of one tenant or of all.
SELECT s.id, s.tenant_id, t.name AS tenant_name, s.version_id, f.name AS function_name, p.name AS proxy_name,
       d.name AS device_name, s.state, s.generation, s.memory_bytes, s.memory_used, s.bytes_up, s.bytes_down,
       s.device_us, s.cost_nano, s.error_code, s.move_to, s.move_error, s.started_at, s.updated_at, s.ended_at
FROM sessions s JOIN tenants t ON t.id = s.tenant_id
LEFT JOIN devices d ON d.id = s.device_id LEFT JOIN proxies p ON p.number = s.proxy
LEFT JOIN function_versions v ON v.id = s.version_id LEFT JOIN functions f ON f.id = v.function_id
WHERE ($1::bigint IS NULL OR s.tenant_id = $1) AND (s.ended_at IS NULL OR $2::bool)
ORDER BY s.started_at DESC LIMIT 1000

-- name: ask_move
-- The proxy that has the session finds this when it looks, or hears the notification.
UPDATE sessions SET move_to = $2, move_error = NULL
WHERE id = $1 AND ended_at IS NULL AND ($3::bigint IS NULL OR tenant_id = $3)
RETURNING id, pg_notify('dgsf_sessions', '')

-- name: asked_moves
-- What this proxy's sessions were asked to do.
SELECT id, move_to FROM sessions WHERE proxy = $1 AND ended_at IS NULL AND move_to IS NOT NULL

-- name: answer_move
-- It has moved (no error), or why not.
UPDATE sessions SET move_to = NULL, move_error = $2 WHERE id = $1

-- name: forget_old_sessions
-- Rows of sessions that ended long ago; their charges stay.
DELETE FROM sessions WHERE id IN (
    SELECT id FROM sessions WHERE ended_at < clock_timestamp() - interval '30 days' LIMIT $1)
