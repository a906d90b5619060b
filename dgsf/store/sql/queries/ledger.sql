-- name: usage
-- What each function used and cost, refunds taken off. Sums by version first: few groups to join. Version 0 is
-- nobody's function: programs that were attached to a device.
WITH spent AS (
    SELECT tenant_id, version_id,
           count(*) FILTER (WHERE kind = 'usage') AS calls,
           count(*) FILTER (WHERE kind = 'refund') AS refunds,
           sum(device_us)::bigint AS device_us, sum(amount_nano)::bigint AS amount_nano
    FROM charges
    WHERE ($1::bigint IS NULL OR tenant_id = $1)
      AND created_at >= coalesce($2::timestamptz, '-infinity') AND created_at < coalesce($3::timestamptz, 'infinity')
    GROUP BY tenant_id, version_id
)
SELECT t.name AS tenant_name, coalesce(f.name, '(attached)') AS function_name, sum(s.calls)::bigint AS calls,
       sum(s.device_us)::bigint AS device_us, sum(s.amount_nano)::bigint AS amount_nano,
       sum(s.refunds)::bigint AS refunds
FROM spent s
JOIN tenants t ON t.id = s.tenant_id
LEFT JOIN function_versions v ON v.id = s.version_id
LEFT JOIN functions f ON f.id = v.function_id
GROUP BY t.name, f.id, f.name
ORDER BY t.name, function_name

-- name: check_ledger
-- Everything that must be true of the ledger, counted where it is not. One statement, so one snapshot.
-- unbalanced: a charge without exactly two postings, or whose postings are not -amount from the tenant's
-- account and +amount to the platform's. impossible: rows that check constraints would have refused.
WITH revenue AS (
    SELECT id FROM accounts WHERE tenant_id IS NULL
), sums AS (
    SELECT p.charge_id, count(*) AS sides, sum(p.amount_nano) AS total,
           sum(p.amount_nano) FILTER (WHERE p.account_id = revenue.id) AS earned
    FROM postings p, revenue GROUP BY p.charge_id
)
SELECT
    (SELECT count(*) FROM charges) AS charges,
    (SELECT count(*) FROM postings) AS postings,
    (SELECT count(*) FROM charges c LEFT JOIN sums s ON s.charge_id = c.id
        LEFT JOIN accounts a ON a.tenant_id = c.tenant_id
        LEFT JOIN postings p ON p.charge_id = c.id AND p.account_id = a.id
        WHERE s.sides IS DISTINCT FROM 2 OR s.total <> 0 OR s.earned IS DISTINCT FROM c.amount_nano
           OR p.amount_nano IS DISTINCT FROM -c.amount_nano) AS unbalanced,
    (SELECT count(*) FROM (SELECT FROM charges GROUP BY call_id, kind HAVING count(*) > 1) d) AS double_charged,
    (SELECT count(*) FROM calls c WHERE c.state = 'succeeded'
        AND NOT EXISTS (SELECT FROM charges h WHERE h.call_id = c.id AND h.kind = 'usage')) AS uncharged_success,
    (SELECT count(*) FROM postings p WHERE NOT EXISTS (SELECT FROM charges h WHERE h.id = p.charge_id)) AS orphan_postings,
    (SELECT count(*) FROM charges h WHERE NOT EXISTS
        (SELECT FROM calls c WHERE c.id = h.call_id AND c.finished_at IS NOT NULL AND c.charged)) AS orphan_charges,
    (SELECT count(*) FROM calls
        WHERE queue_us < 0 OR device_us < 0 OR cost_nano < 0 OR attempt < 1
           OR (state IN ('queued', 'running')) <> (finished_at IS NULL)
           OR (charged AND (finished_at IS NULL OR state = 'aborted')) OR (NOT charged AND cost_nano <> 0))
    + (SELECT count(*) FROM charges
        WHERE CASE kind WHEN 'usage' THEN id <> call_id OR device_us < 0 OR amount_nano < 0
                        ELSE id = call_id OR device_us > 0 OR amount_nano > 0 END) AS impossible
