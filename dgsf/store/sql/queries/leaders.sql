-- name: acquire_leadership
-- Free, expired, or already this holder's; every success is a new epoch.
INSERT INTO leaders AS l (name, holder, epoch, expires_at)
VALUES ($1, $2, 1, clock_timestamp() + make_interval(secs => $3::float8))
ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, epoch = l.epoch + 1,
    expires_at = clock_timestamp() + make_interval(secs => $3::float8)
    WHERE l.expires_at < clock_timestamp() OR l.holder = excluded.holder
RETURNING l.epoch

-- name: renew_leadership
-- While the epoch is unchanged nobody else has led since, even if the time had run out.
-- What was released stays released.
UPDATE leaders SET expires_at = clock_timestamp() + make_interval(secs => $4::float8)
WHERE name = $1 AND holder = $2 AND epoch = $3 AND expires_at > '-infinity' RETURNING epoch

-- name: release_leadership
-- Lets a stand-by take over at once; the row keeps the epoch.
UPDATE leaders SET expires_at = '-infinity' WHERE name = $1 AND holder = $2 AND epoch = $3 RETURNING epoch
