-- What a session owes since its last bill, so that a proxy that is killed takes no more than a second of it along,
-- and which session went on with what one had that was lost with its proxy.
ALTER TABLE sessions
    ADD COLUMN segment_id    uuid, -- of the bill that is running, the id of its call to be; null: nothing used in it
    ADD COLUMN unbilled_us   bigint NOT NULL DEFAULT 0, -- in that segment
    ADD COLUMN unbilled_nano bigint NOT NULL DEFAULT 0,
    ADD COLUMN resumed_by    uuid; -- the session that repeats what this one had done
