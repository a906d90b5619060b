-- name: finish_calls
-- The hot statement: the terminal state of many calls, their charges and postings, in one commit.
-- A call without a row is inserted; one with a row is finished only by who knows its attempt, while it
-- is running (the fence). Charges are made from the rows that were really written, so a repeated or
-- stale finish charges nothing. Answers null if every row was written, else the ids that were: the
-- usual answer is then one small row. Ids must differ from each other; the caller sees to it.
-- The tenant's account comes by a scalar subquery: always one index look-up, whatever the statistics say.
WITH finished AS (
    INSERT INTO calls AS c (id, attempt, tenant_id, version_id, state, error_code, device_id,
                            queue_us, device_us, cost_nano, created_at, charged, response, finished_at)
    SELECT id, attempt, tenant_id, version_id, state, error_code, device_id, queue_us, device_us,
           CASE WHEN charged THEN cost_nano ELSE 0 END, to_timestamp(created_at), charged, response, now()
    FROM unnest($1::uuid[], $2::int[], $3::bigint[], $4::bigint[], $5::call_state[], $6::text[], $7::bigint[],
                $8::bigint[], $9::bigint[], $10::bigint[], $11::float8[], $12::bool[], $13::bytea[])
         AS given (id, attempt, tenant_id, version_id, state, error_code, device_id,
                   queue_us, device_us, cost_nano, created_at, charged, response)
    ON CONFLICT (id) DO UPDATE SET
        state = excluded.state, error_code = excluded.error_code, device_id = excluded.device_id,
        queue_us = excluded.queue_us, device_us = excluded.device_us, cost_nano = excluded.cost_nano,
        charged = excluded.charged, response = excluded.response, finished_at = excluded.finished_at,
        request = NULL
        WHERE c.attempt = excluded.attempt AND c.state = 'running'
    RETURNING c.id, c.tenant_id, c.version_id, c.device_us, c.cost_nano, c.charged
), charge AS (
    INSERT INTO charges (call_id, kind, id, tenant_id, version_id, device_us, amount_nano, created_at)
    SELECT id, 'usage', id, tenant_id, version_id, device_us, cost_nano, now() FROM finished WHERE charged
), entry AS (
    INSERT INTO postings (charge_id, account_id, amount_nano)
    SELECT f.id, side.account_id, side.amount_nano
    FROM finished f CROSS JOIN LATERAL (VALUES
        ((SELECT a.id FROM accounts a WHERE a.tenant_id = f.tenant_id), -f.cost_nano),
        ((SELECT a.id FROM accounts a WHERE a.tenant_id IS NULL), f.cost_nano)
    ) AS side (account_id, amount_nano)
    WHERE f.charged
)
SELECT CASE WHEN count(*) = cardinality($1::uuid[]) THEN NULL ELSE coalesce(array_agg(id), '{}') END
FROM finished

-- name: attempts_of_calls
-- Reads what stands in the way of a finish that was not accepted. A statement of its own: only a new
-- snapshot sees the row that the fence has met.
SELECT id, attempt, state FROM calls WHERE id = ANY($1::uuid[])

-- name: begin_attempt
-- Before a call is sent again: commits its next attempt, so that the lost one can no longer finish it.
INSERT INTO calls AS c (id, attempt, tenant_id, version_id, state, created_at, claimed_by)
VALUES ($1, $2, $3, $4, 'running', to_timestamp($5::float8), $6)
ON CONFLICT (id) DO UPDATE SET
    attempt = excluded.attempt, state = 'running', claimed_by = excluded.claimed_by
    WHERE c.state IN ('queued', 'running') AND c.attempt < excluded.attempt
RETURNING c.id

-- name: reserve_key
-- Takes the key and reserves the call's row together. A key past its 24 hours is taken over, and one whose
-- call ended without a charge: the platform failed it, so the caller's next try is a new call. Any other
-- is left alone and the answer is empty.
WITH taken AS (
    INSERT INTO idempotency_keys AS k (tenant_id, key, body_hash, call_id, created_at)
    VALUES ($3, $7, $8, $1, clock_timestamp())
    ON CONFLICT (tenant_id, key) DO UPDATE SET
        body_hash = excluded.body_hash, call_id = excluded.call_id, created_at = excluded.created_at
        WHERE k.created_at < clock_timestamp() - interval '24 hours'
           OR EXISTS (SELECT FROM calls c WHERE c.id = k.call_id AND c.finished_at IS NOT NULL AND NOT c.charged)
    RETURNING k.call_id
)
INSERT INTO calls (id, attempt, tenant_id, version_id, state, created_at, claimed_by)
SELECT call_id, $2, $3, $4, 'running', to_timestamp($5::float8), $6 FROM taken
RETURNING id

-- name: find_key
-- Who holds a key now and how far that call is; for the caller that found it taken.
SELECT k.call_id, k.body_hash, c.state, c.attempt, c.response
FROM idempotency_keys k JOIN calls c ON c.id = k.call_id
WHERE k.tenant_id = $1 AND k.key = $2

-- name: release_key
-- Forgets a reservation whose answer is not stored (full queue, platform away, bad arguments), so that
-- the key can be used again at once. A call that has ended keeps its key.
WITH dropped AS (
    DELETE FROM calls WHERE id = $3 AND tenant_id = $1 AND state IN ('queued', 'running') RETURNING id
)
DELETE FROM idempotency_keys k USING dropped
WHERE k.tenant_id = $1 AND k.key = $2 AND k.call_id = dropped.id

-- name: forget_old_keys
-- Keys past their 24 hours and the answers kept for them, some at a time so that no lock is held long. The
-- calls stay.
WITH forgotten AS (
    DELETE FROM idempotency_keys WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM idempotency_keys WHERE created_at < clock_timestamp() - interval '24 hours' LIMIT $1))
    RETURNING call_id
), emptied AS (
    UPDATE calls SET response = NULL FROM forgotten f WHERE calls.id = f.call_id AND response IS NOT NULL
)
SELECT count(*) FROM forgotten

-- name: close_unknown
-- The caller is told that the outcome is unknown: an uncharged end takes the place of whatever runs, with
-- a higher attempt, so that a late finish is stale. An end that has landed stays as it is.
INSERT INTO calls AS c (id, attempt, tenant_id, version_id, state, error_code, created_at, claimed_by, finished_at)
VALUES ($1, $2::int + 1, $3, $4, 'failed', $7, to_timestamp($5::float8), $6, clock_timestamp())
ON CONFLICT (id) DO UPDATE SET
    attempt = greatest(c.attempt + 1, excluded.attempt), state = excluded.state,
    error_code = excluded.error_code, finished_at = excluded.finished_at, request = NULL
    WHERE c.state IN ('queued', 'running')

-- name: refund_calls
-- Mirrors the usage charge and its postings, once: the primary key (call, kind) refuses a second refund.
-- A usage charge has its call's id, so its postings are found by that.
WITH refund AS (
    INSERT INTO charges (call_id, kind, id, tenant_id, version_id, device_us, amount_nano)
    SELECT call_id, 'refund', gen_random_uuid(), tenant_id, version_id, -device_us, -amount_nano
    FROM charges WHERE call_id = ANY($1::uuid[]) AND kind = 'usage' ORDER BY call_id
    ON CONFLICT (call_id, kind) DO NOTHING
    RETURNING id, call_id
), entry AS (
    INSERT INTO postings (charge_id, account_id, amount_nano)
    SELECT refund.id, p.account_id, -p.amount_nano FROM refund JOIN postings p ON p.charge_id = refund.call_id
)
SELECT count(*) FROM refund

-- name: landed_calls
-- Which of these have ended, as far as the store knows.
SELECT id FROM calls WHERE id = ANY($1::uuid[]) AND finished_at IS NOT NULL

-- name: get_call
-- One call, with everything that is known of it.
SELECT id, tenant_id, version_id, state, attempt, device_id, error_code, queue_us, device_us, cost_nano,
       charged, created_at, finished_at, claimed_by, request, response
FROM calls WHERE id = $1
