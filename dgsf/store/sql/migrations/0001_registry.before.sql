-- Who may call, what can be called, and the one number that tells caches that either has changed.
-- Everything lives in the schema "dgsf"; the migration runner makes it and sets the search path.

CREATE TABLE tenants (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name       text NOT NULL UNIQUE CHECK (name <> ''),
    created_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- One account per tenant, and one without a tenant: the platform's own revenue.
-- NULLS NOT DISTINCT makes a second revenue account impossible.
CREATE TABLE accounts (
    id        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant_id bigint REFERENCES tenants (id),
    name      text NOT NULL,
    UNIQUE NULLS NOT DISTINCT (tenant_id)
);
INSERT INTO accounts (tenant_id, name) VALUES (NULL, 'platform revenue');

CREATE TABLE api_keys (
    key_id     text PRIMARY KEY,
    tenant_id  bigint NOT NULL REFERENCES tenants (id),
    role       text NOT NULL CHECK (role IN ('operator', 'deploy', 'invoke')),
    sha256     bytea NOT NULL CHECK (octet_length(sha256) = 32),
    name       text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    revoked_at timestamptz
);
CREATE INDEX api_keys_tenant ON api_keys (tenant_id);

CREATE TABLE functions (
    id                 bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant_id          bigint NOT NULL REFERENCES tenants (id),
    name               text COLLATE "C" NOT NULL CHECK (name <> ''), -- "C": listings page in byte order
    current_version_id bigint,
    retired_at         timestamptz,
    UNIQUE (tenant_id, name)
);

CREATE TABLE function_versions (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    function_id bigint NOT NULL REFERENCES functions (id),
    number      integer NOT NULL CHECK (number >= 1),
    digest      bytea NOT NULL,
    metadata    jsonb NOT NULL,
    code        bytea NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    UNIQUE (function_id, number)
);
-- Code is packed already: trying to compress it again only costs time.
ALTER TABLE function_versions ALTER COLUMN code SET STORAGE EXTERNAL;
ALTER TABLE functions ADD FOREIGN KEY (current_version_id) REFERENCES function_versions (id);

-- For tables and rows that are written once. The argument says what the reader should do instead.
CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% of %.% is refused: %', TG_OP, TG_TABLE_SCHEMA, TG_TABLE_NAME, TG_ARGV[0]
        USING ERRCODE = 'restrict_violation';
END
$$;
CREATE TRIGGER function_versions_are_immutable BEFORE UPDATE OR TRUNCATE ON function_versions
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change('a version never changes, deploy a new one');

-- One row; raised by every change that caches must see. Updated often, so it keeps room for HOT updates.
CREATE TABLE meta (
    only_one boolean PRIMARY KEY DEFAULT true CHECK (only_one),
    version  bigint NOT NULL
) WITH (fillfactor = 10);
INSERT INTO meta (version) VALUES (1);

-- Called last in a transaction: the row lock makes it the point where changes queue up.
CREATE FUNCTION touch_meta() RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    raised bigint;
BEGIN
    UPDATE dgsf.meta SET version = version + 1 RETURNING version INTO raised;
    PERFORM pg_notify('dgsf_meta', raised::text);
    RETURN raised;
END
$$;
