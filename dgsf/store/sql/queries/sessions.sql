-- name: write_sessions
-- How sessions are, as their proxy knows them; the first time makes the row. A session that has ended stays so. Why it did
-- not move is of no interest once it has moved or begun again.
INSERT INTO sessions AS s (id, tenant_id, version_id, proxy, proxy_incarnation, device_id, state, generation,
                           memory_bytes, memory_used, bytes_up, bytes_down, device_us, cost_nano, error_code,
                           started_at, segment_id, unbilled_us, unbilled_nano, ended_at)
SELECT g.id, g.tenant_id, g.version_id, $1, $2, g.device_id, g.state, g.generation, g.memory_bytes, g.memory_used,
       g.bytes_up, g.bytes_down, g.device_us, g.cost_nano, g.error_code, to_timestamp(g.started_at),
       g.segment_id, g.unbilled_us, g.unbilled_nano, CASE WHEN g.state = 'ended' THEN clock_timestamp() END
FROM unnest($3::uuid[], $4::bigint[], $5::bigint[], $6::bigint[], $7::text[], $8::int[], $9::bigint[], $10::bigint[],
            $11::bigint[], $12::bigint[], $13::bigint[], $14::bigint[], $15::text[], $16::float8[], $17::uuid[],
            $18::bigint[], $19::bigint[])
     AS g (id, tenant_id, version_id, device_id, state, generation, memory_bytes, memory_used, bytes_up, bytes_down,
           device_us, cost_nano, error_code, started_at, segment_id, unbilled_us, unbilled_nano)
ON CONFLICT (id) DO UPDATE SET
    device_id = excluded.device_id, state = excluded.state, generation = excluded.generation,
    memory_used = excluded.memory_used, bytes_up = excluded.bytes_up, bytes_down = excluded.bytes_down,
    device_us = excluded.device_us, cost_nano = excluded.cost_nano, error_code = excluded.error_code,
    segment_id = excluded.segment_id, unbilled_us = excluded.unbilled_us, unbilled_nano = excluded.unbilled_nano,
    move_error = CASE WHEN (s.device_id, s.generation) IS NOT DISTINCT FROM (excluded.device_id, excluded.generation)
                      THEN s.move_error END,
    updated_at = clock_timestamp(), ended_at = excluded.ended_at
    WHERE s.ended_at IS NULL

-- name: unbilled_of_old_sessions
-- What attached programs owed when an earlier life of this proxy was killed. The segment's id is the one under which
-- that life would have billed it: if it did, billing it again changes nothing.
SELECT segment_id AS id, tenant_id, device_id, unbilled_us AS device_us, unbilled_nano AS cost_nano,
       extract(epoch FROM updated_at)::float8 AS created_at
FROM sessions
WHERE proxy = $1 AND proxy_incarnation < $2 AND ended_at IS NULL AND version_id IS NULL
  AND segment_id IS NOT NULL AND (unbilled_us > 0 OR unbilled_nano > 0)

-- name: resume_session
-- $2 repeats what $1 had done, of which was paid what is answered. Only of a session whose proxy was lost (replaced, or
-- silent for as long as $4 says), and once: unless the one that came first never got a device.
UPDATE sessions s SET resumed_by = $2
WHERE s.id = $1 AND s.tenant_id = $3 AND s.version_id IS NULL
  AND (s.ended_at IS NULL OR s.error_code = 'session_lost')
  AND NOT EXISTS (SELECT FROM proxies p WHERE p.number = s.proxy AND p.incarnation = s.proxy_incarnation
                  AND p.heartbeat_at > clock_timestamp() - make_interval(secs => $4::float8))
  AND NOT EXISTS (SELECT FROM sessions n WHERE n.id = s.resumed_by AND n.id <> $2 AND n.device_id IS NOT NULL)
RETURNING s.device_us

-- name: session_was_dummy
-- Whether the device of a session had dummy values: one that goes on for it needs one of the same sort.
SELECT coalesce(d.info #>> '{options,values}', 'real') = 'dummy'
FROM sessions s JOIN devices d ON d.id = s.device_id WHERE s.id = $1 AND s.tenant_id = $2

-- name: close_old_sessions
-- Those of this proxy's earlier lives: they went with it.
UPDATE sessions SET state = 'ended', ended_at = clock_timestamp(), error_code = coalesce(error_code, 'session_lost')
WHERE proxy = $1 AND proxy_incarnation < $2 AND ended_at IS NULL

-- name: list_sessions
-- Open ones, and with $2 also the last that ended; of one tenant or of all.
SELECT s.id, t.name AS tenant_name, f.name AS function_name, p.name AS proxy_name,
       d.name AS device_name, s.state, s.generation, s.memory_bytes, s.memory_used, s.bytes_up, s.bytes_down,
       s.device_us, s.cost_nano, s.error_code, s.move_to, s.move_error, s.started_at, s.updated_at, s.ended_at
FROM sessions s JOIN tenants t ON t.id = s.tenant_id
LEFT JOIN devices d ON d.id = s.device_id LEFT JOIN proxies p ON p.number = s.proxy
LEFT JOIN function_versions v ON v.id = s.version_id LEFT JOIN functions f ON f.id = v.function_id
WHERE ($1::bigint IS NULL OR s.tenant_id = $1) AND (s.ended_at IS NULL OR $2::bool)
ORDER BY s.started_at DESC LIMIT 1000

-- name: get_session
-- One, open or ended, of one tenant or of any: found by its id, however many are younger.
SELECT s.id, t.name AS tenant_name, f.name AS function_name, p.name AS proxy_name,
       d.name AS device_name, s.state, s.generation, s.memory_bytes, s.memory_used, s.bytes_up, s.bytes_down,
       s.device_us, s.cost_nano, s.error_code, s.move_to, s.move_error, s.started_at, s.updated_at, s.ended_at
FROM sessions s JOIN tenants t ON t.id = s.tenant_id
LEFT JOIN devices d ON d.id = s.device_id LEFT JOIN proxies p ON p.number = s.proxy
LEFT JOIN function_versions v ON v.id = s.version_id LEFT JOIN functions f ON f.id = v.function_id
WHERE s.id = $1 AND ($2::bigint IS NULL OR s.tenant_id = $2)

-- name: session_seats
-- Open sessions where they are now; not those whose proxy is gone or silent, which cannot be asked for anything.
SELECT s.id, s.tenant_id, s.version_id, s.device_id, s.state, s.memory_bytes,
       extract(epoch FROM clock_timestamp() - s.started_at)::float8 AS age_s,
       s.move_to IS NOT NULL AS asked, s.move_error
FROM sessions s JOIN proxies p ON p.number = s.proxy AND p.incarnation = s.proxy_incarnation
WHERE s.ended_at IS NULL AND p.heartbeat_at > clock_timestamp() - make_interval(secs => $1::float8)
ORDER BY s.started_at

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
