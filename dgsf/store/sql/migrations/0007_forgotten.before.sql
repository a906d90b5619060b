-- A lost device that an operator wants out of the listing. Its row stays: past sessions and calls name it, and should it
-- come back, its incarnation must be higher than any that it had.
ALTER TABLE devices ADD COLUMN forgotten_at timestamptz CHECK (forgotten_at IS NULL OR state = 'lost');
