-- Calls and what they cost. Ids are uuid version 7, so new rows go to the right edge of every index.
--
-- calls, charges and postings have no foreign keys on purpose: each would run a trigger of about 10 us
-- per row on the hottest statement of the platform, which writes all three together anyway and takes
-- the ids from the rows that it has just written. The ledger's check() finds what a key would refuse.
-- For the same reason each has one index only (plus BRIN, which costs next to nothing), and no check
-- constraints: Postgres reads their expressions anew for every statement, which made the flush of one call
-- 170 us (a third) slower. What a type can say is said by the type, and check() looks for the rest.

CREATE TYPE call_state AS ENUM (
    'queued',      -- accepted, waits for a claim (or again, after a failed attempt)
    'running',     -- from queued by a claim, or reserved by a keyed or repeated sync call
    'succeeded',   -- from running
    'failed',      -- from running
    'cancelled',   -- from queued or running
    'timed_out',   -- from running
    'aborted'      -- from queued: not started in time
);
CREATE TYPE charge_kind AS ENUM (
    'usage',       -- of a call; has the call's own id
    'refund'       -- takes a usage back; has an id of its own and the mirrored amounts
);

CREATE TABLE calls (
    id          uuid PRIMARY KEY,
    tenant_id   bigint NOT NULL,
    version_id  bigint NOT NULL,
    queue_us    bigint NOT NULL DEFAULT 0,
    device_us   bigint NOT NULL DEFAULT 0,
    cost_nano   bigint NOT NULL DEFAULT 0,
    created_at  timestamptz NOT NULL,
    finished_at timestamptz,
    device_id   bigint,
    attempt     integer NOT NULL, -- the fence: who finishes a call must know it
    claimed_by  integer, -- number of the proxy that has it
    charged     boolean NOT NULL DEFAULT false, -- a usage charge was written with the terminal state
    state       call_state NOT NULL,
    error_code  text,
    request     bytea, -- only of async calls
    response    bytea  -- only of keyed and async calls
);
ALTER TABLE calls ALTER COLUMN response SET STORAGE EXTERNAL;
ALTER TABLE calls ALTER COLUMN request SET STORAGE EXTERNAL;

-- Terminal is terminal. Runs on updates only, which plain sync calls never make.
CREATE TRIGGER calls_terminal_is_terminal BEFORE UPDATE ON calls FOR EACH ROW
    WHEN (OLD.finished_at IS NOT NULL AND
          (NEW.state, NEW.attempt, NEW.cost_nano, NEW.device_us, NEW.charged)
          IS DISTINCT FROM (OLD.state, OLD.attempt, OLD.cost_nano, OLD.device_us, OLD.charged))
    EXECUTE FUNCTION refuse_change('the call has ended');

CREATE TABLE charges (
    call_id     uuid NOT NULL,
    kind        charge_kind NOT NULL,
    id          uuid NOT NULL,
    tenant_id   bigint NOT NULL,
    version_id  bigint NOT NULL,
    device_us   bigint NOT NULL,
    amount_nano bigint NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (call_id, kind)
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
