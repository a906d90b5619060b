-- name: lock_proxies
-- Two proxies that register at once must not be given the same number.
LOCK TABLE proxies IN SHARE ROW EXCLUSIVE MODE

-- name: forget_old_proxies
-- Numbers are few (65,535): a proxy not heard of for 30 days gives its back.
DELETE FROM proxies WHERE heartbeat_at < clock_timestamp() - interval '30 days' AND name <> $1

-- name: register_proxy
-- The same name keeps its number for ever; a new one takes the lowest that is free.
INSERT INTO proxies AS p (number, name, node, host_id, unix_path, tcp_host, tcp_port,
                          session_unix_path, session_tcp_host, session_tcp_port)
SELECT coalesce((SELECT number FROM proxies WHERE name = $1),
                CASE WHEN NOT EXISTS (SELECT FROM proxies WHERE number = 1) THEN 1 ELSE
                    (SELECT min(number) + 1 FROM proxies a
                     WHERE NOT EXISTS (SELECT FROM proxies b WHERE b.number = a.number + 1)) END),
       $1, $2, $3, $4, $5, $6, $7, $8, $9
ON CONFLICT (name) DO UPDATE SET
    node = excluded.node, host_id = excluded.host_id, unix_path = excluded.unix_path,
    tcp_host = excluded.tcp_host, tcp_port = excluded.tcp_port, session_unix_path = excluded.session_unix_path,
    session_tcp_host = excluded.session_tcp_host, session_tcp_port = excluded.session_tcp_port,
    incarnation = p.incarnation + 1, heartbeat_at = clock_timestamp()
RETURNING number, name, node, host_id, incarnation, unix_path, tcp_host, tcp_port,
          session_unix_path, session_tcp_host, session_tcp_port, 0::float8 AS heartbeat_age_s

-- name: beat_proxy
-- Fails when a later process of the same name has registered: the earlier one must stop.
UPDATE proxies SET heartbeat_at = clock_timestamp() WHERE number = $1 AND incarnation = $2 RETURNING number

-- name: list_proxies
-- Those heard of within the given age, by Postgres' clock.
SELECT number, name, node, host_id, incarnation, unix_path, tcp_host, tcp_port,
       session_unix_path, session_tcp_host, session_tcp_port,
       extract(epoch FROM clock_timestamp() - heartbeat_at)::float8 AS heartbeat_age_s
FROM proxies WHERE heartbeat_at >= clock_timestamp() - make_interval(secs => $1::float8) ORDER BY number
