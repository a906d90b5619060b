-- Processors of a node that its leases reserve. What a node has is in the info of each of its devices ("cpus"); a
-- node whose devices do not say is not counted.
ALTER TABLE leases ADD COLUMN cpu_milli bigint NOT NULL DEFAULT 0 CHECK (cpu_milli >= 0); -- thousandths of a processor

-- As before, and with the last argument also so many thousandths of a processor of the device's node. They are counted
-- over all devices of the node, so grants that ask for any wait for each other there, before they lock the device.
DROP FUNCTION grant_lease(bigint, text, bigint, bigint, bigint, bigint, interval);
CREATE FUNCTION grant_lease(
    wanted_device bigint, new_holder text, new_holder_incarnation bigint,
    for_version bigint, for_tenant bigint, wanted_bytes bigint, ttl interval, wanted_cpu_milli bigint DEFAULT 0,
    OUT slot integer, OUT epoch bigint, OUT device_incarnation bigint
) RETURNS SETOF record LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    device dgsf.devices;
    held_bytes bigint;
    held_cpu_milli bigint;
    free_slot integer;
BEGIN
    IF wanted_cpu_milli > 0 THEN
        PERFORM pg_advisory_xact_lock(hashtextextended('processors of ' || d.node, 0))
            FROM dgsf.devices d WHERE d.id = wanted_device;
    END IF;
    SELECT * INTO device FROM dgsf.devices d WHERE d.id = wanted_device AND d.state = 'healthy' FOR UPDATE;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    SELECT coalesce(sum(l.memory_bytes), 0) INTO held_bytes
        FROM dgsf.leases l WHERE l.device_id = device.id AND l.holder IS NOT NULL;
    IF held_bytes + wanted_bytes > device.memory_bytes THEN
        RETURN;
    END IF;
    IF wanted_cpu_milli > 0 AND device.info ? 'cpus' THEN
        SELECT coalesce(sum(l.cpu_milli), 0) INTO held_cpu_milli
            FROM dgsf.leases l JOIN dgsf.devices d ON d.id = l.device_id
            WHERE d.node = device.node AND l.holder IS NOT NULL;
        IF held_cpu_milli + wanted_cpu_milli > 1000 * (device.info ->> 'cpus')::bigint THEN
            RETURN;
        END IF;
    END IF;
    SELECT s INTO free_slot FROM generate_series(0, device.slots - 1) s
        WHERE NOT EXISTS (SELECT FROM dgsf.leases l
                          WHERE l.device_id = device.id AND l.slot = s AND l.holder IS NOT NULL)
        ORDER BY s LIMIT 1;
    IF free_slot IS NULL THEN
        RETURN;
    END IF;
    RETURN QUERY
        INSERT INTO dgsf.leases AS l (device_id, slot, epoch, holder, holder_incarnation, device_incarnation,
                                      version_id, tenant_id, memory_bytes, cpu_milli, granted_at, expires_at)
        VALUES (device.id, free_slot, 1, new_holder, new_holder_incarnation, device.incarnation,
                for_version, for_tenant, wanted_bytes, wanted_cpu_milli, clock_timestamp(), clock_timestamp() + ttl)
        ON CONFLICT ON CONSTRAINT leases_pkey DO UPDATE SET
            epoch = l.epoch + 1, holder = excluded.holder, holder_incarnation = excluded.holder_incarnation,
            device_incarnation = excluded.device_incarnation, version_id = excluded.version_id,
            tenant_id = excluded.tenant_id, memory_bytes = excluded.memory_bytes, cpu_milli = excluded.cpu_milli,
            granted_at = excluded.granted_at, expires_at = excluded.expires_at
        RETURNING l.slot, l.epoch, l.device_incarnation;
END
$$;
