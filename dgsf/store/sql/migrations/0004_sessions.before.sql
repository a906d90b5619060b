-- Sessions: programs attached to a remote device through a proxy, and the doors by which they come in.

ALTER TABLE proxies
    ADD COLUMN session_unix_path text,
    ADD COLUMN session_tcp_host  text,
    ADD COLUMN session_tcp_port  integer CHECK (session_tcp_port BETWEEN 0 AND 65535);

-- Written by the proxy that has the session, about once a second while something changes. Who a session is billed
-- to is in `calls`: under its function's version, or under version 0 ("attached") in segments.
CREATE TABLE sessions (
    id                uuid PRIMARY KEY,
    tenant_id         bigint NOT NULL REFERENCES tenants (id),
    version_id        bigint REFERENCES function_versions (id), -- null: an attached program
    proxy             integer NOT NULL, -- number of the proxy that has it
    proxy_incarnation bigint NOT NULL,
    device_id         bigint REFERENCES devices (id), -- that it has or had last
    state             text NOT NULL CHECK (state IN (
                          'fresh',    -- connected, has not asked for a device
                          'begun',    -- waits for a device
                          'attached', -- has one
                          'moving',   -- goes to another one
                          'lost',     -- its device is gone; may begin again
                          'ended')),
    generation        integer NOT NULL DEFAULT 0,
    memory_bytes      bigint NOT NULL, -- leased on the device
    memory_used       bigint NOT NULL DEFAULT 0,
    bytes_up          bigint NOT NULL DEFAULT 0, -- from the guest
    bytes_down        bigint NOT NULL DEFAULT 0, -- to the guest
    device_us         bigint NOT NULL DEFAULT 0,
    cost_nano         bigint NOT NULL DEFAULT 0,
    error_code        text,
    move_to           text, -- asked for: a device's name, or '' for any other; null: nothing asked
    move_error        text, -- why the last move did not happen
    started_at        timestamptz NOT NULL,
    updated_at        timestamptz NOT NULL DEFAULT clock_timestamp(),
    ended_at          timestamptz
) WITH (fillfactor = 50);
-- Few sessions are open at any time, however many have been.
CREATE INDEX sessions_open ON sessions (proxy) WHERE ended_at IS NULL;
