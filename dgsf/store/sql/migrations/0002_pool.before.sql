-- The pool: devices, who holds which slot of them, the proxies, and who leads.
-- These tables are small and updated all the time (heartbeats, renewals): they keep free room in
-- each page so that updates stay HOT, and are vacuumed by count, not by share of their size.

CREATE TABLE devices (
    id                bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name              text NOT NULL UNIQUE CHECK (name <> ''),
    node              text NOT NULL,
    kind              text NOT NULL,
    type              text NOT NULL,
    memory_bytes      bigint NOT NULL CHECK (memory_bytes >= 0),
    slots             integer NOT NULL CHECK (slots >= 0),
    speed             double precision NOT NULL CHECK (speed > 0),
    price_nano_per_us bigint NOT NULL CHECK (price_nano_per_us >= 0),
    state             text NOT NULL CHECK (state IN (
                          'healthy',     -- takes leases
                          'suspect',     -- missed something; no new leases until it is seen well again
                          'quarantined', -- taken out; to be reset and verified
                          'spare',       -- verified, waits to replace another
                          'failed',      -- did not come back from a reset
                          'draining',    -- finishes what runs, takes nothing new
                          'lost')),      -- its server is gone
    incarnation       bigint NOT NULL DEFAULT 1 CHECK (incarnation >= 1), -- only grows
    host_id           text NOT NULL,
    unix_path         text,
    tcp_host          text,
    tcp_port          integer CHECK (tcp_port BETWEEN 0 AND 65535),
    info              jsonb NOT NULL DEFAULT '{}',
    heartbeat_at      timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200);

-- One row per slot that was ever granted, kept when it is free: its epoch only grows.
CREATE TABLE leases (
    device_id          bigint NOT NULL REFERENCES devices (id),
    slot               integer NOT NULL CHECK (slot >= 0),
    epoch              bigint NOT NULL CHECK (epoch >= 1),
    holder             text, -- null: free
    holder_incarnation bigint,
    device_incarnation bigint NOT NULL,
    version_id         bigint REFERENCES function_versions (id),
    tenant_id          bigint REFERENCES tenants (id),
    memory_bytes       bigint NOT NULL CHECK (memory_bytes >= 0),
    granted_at         timestamptz,
    expires_at         timestamptz,
    PRIMARY KEY (device_id, slot),
    CHECK ((holder IS NULL) = (expires_at IS NULL)),
    CHECK ((holder IS NULL) = (holder_incarnation IS NULL)),
    CHECK ((holder IS NULL) = (granted_at IS NULL))
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200);
-- Renewal looks by holder; it changes only expires_at, so this index does not stop HOT updates.
CREATE INDEX leases_holder ON leases (holder);

-- A function and not one statement: each statement in it sees what the wait for the device's row lock
-- has let happen. In one statement the count would come from before that wait, and two grants could
-- take the last slot. An expired lease still counts: its work may be running until it is taken over.
CREATE FUNCTION grant_lease(
    wanted_device bigint, new_holder text, new_holder_incarnation bigint,
    for_version bigint, for_tenant bigint, wanted_bytes bigint, ttl interval,
    OUT slot integer, OUT epoch bigint, OUT device_incarnation bigint
) RETURNS SETOF record LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    device dgsf.devices;
    held_bytes bigint;
    free_slot integer;
BEGIN
    SELECT * INTO device FROM dgsf.devices d WHERE d.id = wanted_device AND d.state = 'healthy' FOR UPDATE;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    SELECT coalesce(sum(l.memory_bytes), 0) INTO held_bytes
        FROM dgsf.leases l WHERE l.device_id = device.id AND l.holder IS NOT NULL;
    IF held_bytes + wanted_bytes > device.memory_bytes THEN
        RETURN;
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
                                      version_id, tenant_id, memory_bytes, granted_at, expires_at)
        VALUES (device.id, free_slot, 1, new_holder, new_holder_incarnation, device.incarnation,
                for_version, for_tenant, wanted_bytes, clock_timestamp(), clock_timestamp() + ttl)
        ON CONFLICT ON CONSTRAINT leases_pkey DO UPDATE SET
            epoch = l.epoch + 1, holder = excluded.holder, holder_incarnation = excluded.holder_incarnation,
            device_incarnation = excluded.device_incarnation, version_id = excluded.version_id,
            tenant_id = excluded.tenant_id, memory_bytes = excluded.memory_bytes,
            granted_at = excluded.granted_at, expires_at = excluded.expires_at
        RETURNING l.slot, l.epoch, l.device_incarnation;
END
$$;

CREATE TABLE proxies (
    number       integer PRIMARY KEY CHECK (number BETWEEN 1 AND 65535), -- it travels in 16 bits of every call id
    name         text NOT NULL UNIQUE CHECK (name <> ''),
    node         text NOT NULL,
    host_id      text NOT NULL,
    incarnation  bigint NOT NULL DEFAULT 1 CHECK (incarnation >= 1),
    unix_path    text,
    tcp_host     text,
    tcp_port     integer CHECK (tcp_port BETWEEN 0 AND 65535),
    heartbeat_at timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200);

-- The row stays when nobody leads: the epoch only grows.
CREATE TABLE leaders (
    name       text PRIMARY KEY,
    holder     text NOT NULL,
    epoch      bigint NOT NULL CHECK (epoch >= 1),
    expires_at timestamptz NOT NULL
) WITH (fillfactor = 10, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200);
