-- Calls and what they cost. Ids are uuid version 7, so new rows go to the right edge of every index.
--
-- calls, charges and postings have no foreign keys on purpose: each would run a trigger of about 10 us
-- per row on the hottest statement of the platform, which writes all three together anyway and takes
-- the ids from the rows that it has just written. The ledger's check() finds what a key would refuse.
-- For the same reason each has one index only (plus BRIN, which costs next to nothing).

CREATE TABLE calls (
    id          uuid PRIMARY KEY,
    tenant_id   bigint NOT NULL,
    version_id  bigint NOT NULL,
    queue_us    bigint NOT NULL DEFAULT 0 CHECK (queue_us >= 0),
    device_us   bigint NOT NULL DEFAULT 0 CHECK (device_us >= 0),
    cost_nano   bigint NOT NULL DEFAULT 0 CHECK (cost_nano >= 0),
    created_at  timestamptz NOT NULL,
    finished_at timestamptz,
    device_id   bigint,
    attempt     integer NOT NULL CHECK (attempt >= 1), -- the fence: who finishes a call must know it
    claimed_by  integer, -- number of the proxy that has it
    charged     boolean NOT NULL DEFAULT false, -- a usage charge was written with the terminal state
    state       text NOT NULL CHECK (state IN (
                    'queued',      -- accepted, waits for a claim (or again, after a failed attempt)
                    'running',     -- from queued by a claim, or reserved by a keyed or repeated sync call
                    'succeeded',   -- from running
                    'failed',      -- from running
                    'cancelled',   -- from queued or running
                    'timed_out',   -- from running
                    'aborted')),   -- from queued: not started in time
    error_code  text,
    request     bytea, -- only of async calls
    response    bytea, -- only of keyed and async calls
    CONSTRAINT calls_terminal_has_end CHECK ((state IN ('queued', 'running')) = (finished_at IS NULL)),
    CONSTRAINT calls_open_costs_nothing CHECK (finished_at IS NOT NULL OR (cost_nano = 0 AND NOT charged)),
    CONSTRAINT calls_aborted_is_free CHECK (state <> 'aborted' OR NOT charged),
    CONSTRAINT calls_uncharged_is_free CHECK (charged OR cost_nano = 0)
);
ALTER TABLE calls ALTER COLUMN response SET STORAGE EXTERNAL;
ALTER TABLE calls ALTER COLUMN request SET STORAGE EXTERNAL;

-- Terminal is terminal. Runs on updates only, which plain sync calls never make.
CREATE TRIGGER calls_terminal_is_terminal BEFORE UPDATE ON calls FOR EACH ROW
    WHEN (OLD.finished_at IS NOT NULL AND
          (NEW.state, NEW.attempt, NEW.cost_nano, NEW.device_us, NEW.charged)
          IS DISTINCT FROM (OLD.state, OLD.attempt, OLD.cost_nano, OLD.device_us, OLD.charged))
    EXECUTE FUNCTION refuse_change('the call has ended');

-- A usage charge has its call's id; a refund has one of its own and the mirrored amounts.
CREATE TABLE charges (
    call_id     uuid NOT NULL,
    kind        text COLLATE "C" NOT NULL CHECK (kind IN ('usage', 'refund')),
    id          uuid NOT NULL,
    tenant_id   bigint NOT NULL,
    version_id  bigint NOT NULL,
    device_us   bigint NOT NULL,
    amount_nano bigint NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (call_id, kind),
    CHECK (CASE kind WHEN 'usage' THEN id = call_id AND device_us >= 0 AND amount_nano >= 0
                     ELSE id <> call_id AND device_us <= 0 AND amount_nano <= 0 END)
);
CREATE INDEX charges_created_at ON charges USING brin (created_at);

-- Double entry: what leaves the tenant's account arrives in the platform's.
CREATE TABLE postings (
    charge_id   uuid NOT NULL,
    account_id  bigint NOT NULL,
    amount_nano bigint NOT NULL,
    PRIMARY KEY (charge_id, account_id)
);

-- Statement-level: they cost nothing where nothing is changed.
CREATE TRIGGER charges_are_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON charges
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change('charges are append-only, write a refund');
CREATE TRIGGER postings_are_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON postings
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change('postings are append-only, write a refund');

CREATE TABLE idempotency_keys (
    tenant_id  bigint NOT NULL REFERENCES tenants (id),
    key        text COLLATE "C" NOT NULL,
    body_hash  bytea NOT NULL,
    call_id    uuid NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (tenant_id, key)
);
CREATE INDEX idempotency_keys_created_at ON idempotency_keys (created_at);
