-- Hosts: what each machine offers, as it says itself now and then. It wakes nobody, and is no history.
CREATE TABLE liza.host (
  board text NOT NULL REFERENCES liza.board,
  name  text NOT NULL,
  facts json NOT NULL,
  seen  timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (board, name)
);

-- Only the process that holds the name of a host speaks for it; its name on the board is `host-NAME`.
CREATE FUNCTION liza.note_host(p_board text, p_name text, p_facts json, p_secret text) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF NOT liza.is_process(p_board, 'host-' || p_name, p_secret) THEN RETURN false; END IF;
  INSERT INTO liza.host (board, name, facts) VALUES (p_board, p_name, p_facts)
    ON CONFLICT (board, name) DO UPDATE SET facts = p_facts, seen = clock_timestamp();
  RETURN true;
END $$;

-- A machine that hangs, or is cut off behind something that keeps its connection, must not lead for ever: the
-- session that holds the supervisor's name ends where its host has said nothing for so many seconds.
CREATE FUNCTION liza.depose(p_board text, p_silence double precision) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF NOT EXISTS (
    SELECT FROM liza.presence lead, liza.presence own, liza.host one
    WHERE lead.board = p_board AND lead.name = 'supervisor' AND own.board = p_board
      AND own.secret = lead.secret AND own.name = 'host-' || one.name AND one.board = p_board
      AND one.seen < clock_timestamp() - p_silence * interval '1 s') THEN
    RETURN false;
  END IF;
  PERFORM pg_terminate_backend(held.pid) FROM pg_locks held
    WHERE held.locktype = 'advisory' AND held.objsubid = 1 AND held.granted
      AND held.database = (SELECT oid FROM pg_database WHERE datname = current_database())
      AND (held.classid::bigint << 32 | held.objid::bigint) = liza.key(p_board, 'supervisor');
  RETURN true;
END $$;

CREATE FUNCTION liza.known_hosts(p_board text)
RETURNS TABLE (name text, facts json, silent double precision, is_live boolean)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  SELECT one.name, one.facts, extract(epoch FROM clock_timestamp() - one.seen)::double precision,
         'host-' || one.name IN (SELECT live.name FROM liza.live_names(p_board) live)
  FROM liza.host one WHERE one.board = p_board AND one.seen > clock_timestamp() - interval '1 day'
  ORDER BY one.name $$;

-- The key that vouches for merges: the first that a machine brings is the one of all.
CREATE TABLE liza.signing (board text PRIMARY KEY REFERENCES liza.board, secret text NOT NULL);
CREATE FUNCTION liza.share_secret(p_board text, p_secret text) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  INSERT INTO liza.signing (board, secret) VALUES (p_board, p_secret) ON CONFLICT DO NOTHING;
  RETURN (SELECT secret FROM liza.signing WHERE board = p_board);
END $$;

-- How many tasks wait for a worker, for what starts machines by it; none while a switch stops everybody.
-- A task that is not on the board any more has ended, and nobody waits for it.
CREATE FUNCTION liza.waiting_tasks(p_board text) RETURNS bigint
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  SELECT count(*) FROM liza.task one WHERE one.board = p_board
    AND one.status IN ('IDLE', 'READY_FOR_REVIEW', 'REJECTED', 'APPROVED', 'INTEGRATION_FAILED')
    AND (one.holder IS NULL OR one.expires < clock_timestamp())
    AND (one.status <> 'IDLE' OR NOT EXISTS (
      SELECT FROM liza.task other WHERE other.board = p_board AND other.id = ANY (one.waits_for)
        AND other.status NOT IN ('MERGED', 'COMPLETE', 'NOTHING_TO_DO')))
    AND NOT EXISTS (SELECT FROM liza.switch thrown WHERE thrown.board = p_board) $$;

-- Whoever may hold names, or see who holds them, may say and see this as well.
REVOKE ALL ON FUNCTION liza.note_host(text, text, json, text), liza.known_hosts(text),
  liza.share_secret(text, text), liza.waiting_tasks(text), liza.depose(text, double precision) FROM PUBLIC;
DO $$
DECLARE one record;
BEGIN
  FOR one IN
    SELECT DISTINCT held.proname, granted.grantee::regrole AS role FROM pg_proc held,
      aclexplode(held.proacl) granted
    WHERE held.oid IN ('liza.hold_name(text,text,json,text)'::regprocedure,
                       'liza.live_names(text)'::regprocedure)
      AND granted.grantee NOT IN (0, held.proowner)
  LOOP
    EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO %s',
      CASE one.proname WHEN 'hold_name' THEN 'liza.note_host(text,text,json,text), liza.share_secret(text,text)'
                       ELSE 'liza.known_hosts(text), liza.waiting_tasks(text)' END, one.role);
  END LOOP;
END $$;
