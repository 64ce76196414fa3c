-- No event leaves the record any more: what sealed ranges needed goes, and `admit` is that of 0001 again.

DROP FUNCTION detach_sealed();

CREATE OR REPLACE FUNCTION admit(role text, appends boolean) RETURNS void LANGUAGE plpgsql SET search_path = steno, pg_temp AS $$
BEGIN
    EXECUTE format('GRANT USAGE ON SCHEMA steno TO %I', role);
    EXECUTE format('GRANT SELECT ON meta, head, streams, parts, events, ranges, alembic_version TO %I', role);
    IF appends THEN
        EXECUTE format('GRANT SELECT ON blobs, leases TO %I', role);  -- the vault is among them
        EXECUTE format('GRANT INSERT ON events, parts, streams TO %I', role);
        EXECUTE format('GRANT EXECUTE ON FUNCTION make_room, look_at_head, claim, advance, take_lease, renew_lease, '
                       'put_blob TO %I', role);
    END IF;
END $$;
