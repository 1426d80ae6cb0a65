-- The board on a server. Only functions write; whoever owns the schema owns the board.
CREATE SCHEMA liza;
CREATE TABLE liza.migration (version int PRIMARY KEY, at timestamptz NOT NULL DEFAULT clock_timestamp());

-- One row a board. It is locked by every commit, so that the order of revisions is the order of commits.
CREATE TABLE liza.board (
  name     text PRIMARY KEY,
  epoch    uuid NOT NULL DEFAULT gen_random_uuid(),      -- another one, where a board was made anew
  revision bigint NOT NULL DEFAULT 0,
  sum      text NOT NULL DEFAULT '',
  ends     bigint NOT NULL DEFAULT 0,
  at       timestamptz NOT NULL DEFAULT '-infinity',
  sent     bigint NOT NULL DEFAULT 0                     -- alerts up to here were sent
) WITH (fillfactor = 50);

-- The journal: the very lines that a board in files has, without their line breaks.
CREATE TABLE liza.entry (
  board    text NOT NULL REFERENCES liza.board,
  revision bigint NOT NULL,
  ends     bigint NOT NULL,                              -- the place behind the line, in bytes
  sum      text NOT NULL,
  operation uuid NOT NULL,                               -- by it a commit is found whose reply was lost
  at       timestamptz NOT NULL,
  line     text NOT NULL,
  PRIMARY KEY (board, revision),
  UNIQUE (board, ends),
  UNIQUE (board, operation)
);
CREATE FUNCTION liza.refuse_rewrite() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN RAISE EXCEPTION 'the history of a board is append-only' USING ERRCODE = 'LZ006'; END $$;
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON liza.entry
  FOR EACH STATEMENT EXECUTE FUNCTION liza.refuse_rewrite();

-- What the server itself has to know of tasks: who may write about one, by its own clock.
CREATE TABLE liza.task (
  board   text NOT NULL REFERENCES liza.board,
  id      text NOT NULL,
  status  text,
  holder  text,
  token   text,
  expires timestamptz,
  waits_for text[] NOT NULL DEFAULT '{}',                -- so that a task whose turn has not come starts no machine
  PRIMARY KEY (board, id)
);
CREATE TABLE liza.switch (
  board text NOT NULL REFERENCES liza.board,
  -- A row of another name would stop machines from being started, and nobody could take it back.
  name  text NOT NULL CHECK (name IN ('ABORT', 'PAUSE', 'CHECKPOINT')),
  said  text NOT NULL,
  at    timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (board, name)
);
CREATE TABLE liza.alert (
  board    text NOT NULL REFERENCES liza.board,
  position bigint NOT NULL,
  at       text NOT NULL,
  says     text NOT NULL,
  PRIMARY KEY (board, position)
);
-- Who says that it is alive; it is, while its session holds the advisory lock of the name.
CREATE TABLE liza.presence (
  board  text NOT NULL REFERENCES liza.board,
  name   text NOT NULL,
  pid    int NOT NULL,
  host   text NOT NULL,
  boot   text NOT NULL,
  since  text NOT NULL,
  secret bytea NOT NULL,                                 -- a digest; the process that holds the name knows it
  PRIMARY KEY (board, name)
);

CREATE FUNCTION liza.key(p_board text, p_name text) RETURNS bigint LANGUAGE sql IMMUTABLE AS
$$ SELECT hashtextextended('liza/' || p_board || '/' || p_name, 0) $$;

CREATE FUNCTION liza.is_owner() RETURNS boolean LANGUAGE sql STABLE AS
$$ SELECT pg_has_role(session_user, nspowner, 'USAGE') FROM pg_namespace WHERE nspname = 'liza' $$;

CREATE FUNCTION liza.require_owner(p_what text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF NOT liza.is_owner() THEN
    RAISE EXCEPTION 'only the owner of the board may %', p_what USING ERRCODE = 'LZ003';
  END IF;
END $$;

CREATE FUNCTION liza.lock_board(p_board text) RETURNS void LANGUAGE sql AS
$$ SELECT pg_advisory_xact_lock(liza.key(p_board, '')) $$;

CREATE FUNCTION liza.is_process(p_board text, p_name text, p_secret text) RETURNS boolean LANGUAGE sql STABLE
AS $$ SELECT EXISTS (SELECT FROM liza.presence WHERE board = p_board AND name = p_name
                     AND secret = sha256(convert_to(p_secret, 'UTF8'))) $$;

-- A worker may write nothing about a task whose lease is another's and not over, nor take a lease for somebody
-- else.
CREATE FUNCTION liza.check_holder(p_known liza.task, p_task text, p_lease json, p_secret text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
  IF p_known.holder IS NOT NULL AND p_known.expires > clock_timestamp()
     AND NOT liza.is_process(p_known.board, p_known.holder, p_secret) THEN
    RAISE EXCEPTION '%: the lease is %''s until %', p_task, p_known.holder, p_known.expires
      USING ERRCODE = 'LZ004';
  END IF;
  IF json_typeof(p_lease) = 'object' AND NOT liza.is_process(p_known.board, p_lease->>'holder', p_secret) THEN
    RAISE EXCEPTION '%: a lease for % is not this process''s to take', p_task, p_lease->>'holder'
      USING ERRCODE = 'LZ004';
  END IF;
END $$;

-- Follow one task: NULL is what the line does not say, and JSON's null what it puts back to nothing.
CREATE FUNCTION liza.follow_task(p_board text, p_task text, p_change json, p_secret text, p_is_owner boolean)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  known liza.task; is_new boolean;
  lease json := p_change->'lease'; names json := p_change->'depends_on';
BEGIN
  SELECT * INTO known FROM liza.task WHERE board = p_board AND id = p_task;
  is_new := NOT FOUND;
  known.board := p_board;
  IF NOT p_is_owner THEN
    PERFORM liza.check_holder(known, p_task, lease, p_secret);
  END IF;
  IF p_change->'status' IS NOT NULL THEN
    known.status := p_change->>'status';
  END IF;
  IF lease IS NOT NULL THEN
    known.holder := lease->>'holder';
    known.token := lease->>'token';
    known.expires := lease->>'expires';
  END IF;
  IF names IS NOT NULL OR is_new THEN
    known.waits_for := CASE WHEN json_typeof(names) = 'array'
      THEN ARRAY(SELECT json_array_elements_text(names)) ELSE '{}' END;
  END IF;
  IF is_new THEN
    INSERT INTO liza.task (board, id, status, holder, token, expires, waits_for) VALUES
      (p_board, p_task, known.status, known.holder, known.token, known.expires, known.waits_for);
  ELSIF p_change->'status' IS NOT NULL OR lease IS NOT NULL OR names IS NOT NULL THEN
    UPDATE liza.task SET (status, holder, token, expires, waits_for)
      = (known.status, known.holder, known.token, known.expires, known.waits_for)
      WHERE board = p_board AND id = p_task;
  END IF;
END $$;

CREATE FUNCTION liza.follow_tasks(p_board text, p_put json, p_gone json, p_secret text, p_is_owner boolean)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE tasks json := p_put->'tasks'; one record; known liza.task;
BEGIN
  -- Of a first line, which has them as a list; later ones name each by its id.
  IF json_typeof(tasks) = 'array' AND p_is_owner THEN
    PERFORM liza.follow_task(p_board, task->>'id', task, p_secret, p_is_owner)
      FROM json_array_elements(tasks) AS task;
  ELSIF tasks IS NOT NULL THEN
    FOR one IN SELECT key, value FROM json_each(tasks) LOOP
      IF one.value->>'id' <> one.key THEN
        RAISE EXCEPTION 'the line says that % is %', one.key, one.value->>'id' USING ERRCODE = 'LZ005';
      END IF;
      PERFORM liza.follow_task(p_board, one.key, one.value, p_secret, p_is_owner);
    END LOOP;
  END IF;
  IF p_gone->'tasks' IS NULL THEN RETURN; END IF;
  -- Whoever takes a task off the board ends its lease as well, and may do so no more than otherwise.
  FOR known IN
    SELECT * FROM liza.task WHERE board = p_board
      AND id IN (SELECT json_array_elements_text(p_gone->'tasks'))
  LOOP
    IF NOT p_is_owner THEN
      PERFORM liza.check_holder(known, known.id, NULL, p_secret);
    END IF;
    DELETE FROM liza.task WHERE board = p_board AND id = known.id;
  END LOOP;
END $$;

-- One line behind the last: checked, chained, followed. The caller holds the row of the board.
CREATE FUNCTION liza.add_line(
  p_board liza.board, p_operation uuid, p_line text, p_said json, p_secret text, p_is_owner boolean
) RETURNS liza.board LANGUAGE plpgsql AS $$
DECLARE put json := p_said->'put';
BEGIN
  p_board.sum := left(encode(sha256(convert_to(p_board.sum || left(p_line, -26), 'UTF8')), 'hex'), 16);
  p_board.revision := p_board.revision + 1;
  p_board.ends := p_board.ends + octet_length(p_line) + 1;
  p_board.at := p_said->>'at';
  IF right(p_line, 26) <> ',"sum":"' || p_board.sum || '"}'
     OR (p_said->>'revision')::bigint <> p_board.revision THEN
    RAISE EXCEPTION 'the line does not follow on revision %', p_board.revision - 1 USING ERRCODE = 'LZ005';
  END IF;
  IF NOT p_is_owner AND (put->'config' IS NOT NULL OR put->'workflow' IS NOT NULL) THEN
    RAISE EXCEPTION 'only the owner of the board may change its settings' USING ERRCODE = 'LZ003';
  END IF;
  PERFORM liza.follow_tasks(p_board.name, put, p_said->'gone', p_secret, p_is_owner);
  INSERT INTO liza.entry (board, revision, ends, sum, operation, at, line)
    VALUES (p_board.name, p_board.revision, p_board.ends, p_board.sum, p_operation, p_board.at, p_line);
  UPDATE liza.board SET revision = p_board.revision, sum = p_board.sum, ends = p_board.ends, at = p_board.at
    WHERE name = p_board.name;
  RETURN p_board;
END $$;

-- A commit in one call: lock, was it done already, compare, fence, write, tell. Each time is the server's.
CREATE FUNCTION liza.commit(p_board text, p_operation uuid, p_base text, p_line text, p_secret text)
RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  known liza.board; said json := p_line; at timestamptz := said->>'at';
  -- It runs as whoever owns the board.
  is_owner boolean := pg_has_role(session_user, current_user, 'USAGE');
BEGIN
  SELECT * INTO known FROM liza.board WHERE name = p_board FOR UPDATE;
  IF NOT FOUND THEN RAISE EXCEPTION 'there is no board %', p_board USING ERRCODE = 'LZ007'; END IF;
  IF EXISTS (SELECT FROM liza.entry WHERE board = p_board AND operation = p_operation) THEN RETURN; END IF;
  IF known.sum <> p_base THEN
    RAISE EXCEPTION 'the board is at revision %', known.revision USING ERRCODE = 'LZ001';
  END IF;
  IF at < clock_timestamp() - interval '15 s'
     OR at > greatest(known.at, clock_timestamp() + interval '15 s') THEN
    RAISE EXCEPTION 'it is %, and the change says %', clock_timestamp(), at USING ERRCODE = 'LZ002';
  END IF;
  known := liza.add_line(known, p_operation, p_line, said, p_secret, is_owner);
  PERFORM pg_notify('liza', p_board || ' ' || known.revision);
END $$;

-- A whole journal, from another board, on which nothing was written yet.
CREATE FUNCTION liza.restore(p_board text, p_lines text[]) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE known liza.board; line text;
BEGIN
  PERFORM liza.require_owner('make one');
  INSERT INTO liza.board (name) VALUES (p_board) ON CONFLICT DO NOTHING;
  SELECT * INTO known FROM liza.board WHERE name = p_board FOR UPDATE;
  IF known.revision > 0 THEN
    RAISE EXCEPTION 'there is a board already' USING ERRCODE = 'LZ008';
  END IF;
  FOREACH line IN ARRAY p_lines LOOP
    known := liza.add_line(known, gen_random_uuid(), line, line::json, '', true);
  END LOOP;
  PERFORM pg_notify('liza', p_board || ' ' || known.revision);
END $$;

CREATE FUNCTION liza.throw_switch(p_board text, p_name text, p_said text) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  INSERT INTO liza.switch (board, name, said) VALUES (p_board, p_name, p_said) ON CONFLICT DO NOTHING;
  IF FOUND THEN PERFORM pg_notify('liza', p_board || ' switch'); END IF;
  RETURN FOUND;
END $$;
CREATE FUNCTION liza.replace_switch(p_board text, p_name text, p_said text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  PERFORM liza.require_owner('change what a switch says');
  INSERT INTO liza.switch (board, name, said) VALUES (p_board, p_name, p_said)
    ON CONFLICT (board, name) DO UPDATE SET said = p_said, at = clock_timestamp();
  PERFORM pg_notify('liza', p_board || ' switch');
END $$;
CREATE FUNCTION liza.clear_switch(p_board text, p_name text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  PERFORM liza.require_owner('take a switch back');
  DELETE FROM liza.switch WHERE board = p_board AND name = p_name;
  PERFORM pg_notify('liza', p_board || ' switch');
END $$;

CREATE FUNCTION liza.append_alert(p_board text, p_at text, p_says text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  -- One at a time, so that who reads on from a position misses none that was written meanwhile.
  PERFORM pg_advisory_xact_lock(liza.key(p_board, '/alerts'));
  INSERT INTO liza.alert (board, position, at, says)
    SELECT p_board, coalesce(max(position), 0) + 1, p_at, p_says FROM liza.alert WHERE board = p_board;
END $$;
CREATE FUNCTION liza.mark_sent(p_board text, p_position bigint) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  PERFORM liza.require_owner('say what was sent');
  UPDATE liza.board SET sent = p_position WHERE name = p_board;
END $$;

-- Names are held by the session, and free when that ends.
CREATE FUNCTION liza.hold_name(p_board text, p_name text, p_holder json, p_secret text) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF p_name = 'supervisor' THEN PERFORM liza.require_owner('supervise it'); END IF;
  IF NOT pg_try_advisory_lock(liza.key(p_board, p_name)) THEN
    -- NULL where it is a session of the same process that this server has not missed yet.
    RETURN CASE WHEN NOT liza.is_process(p_board, p_name, p_secret) THEN false END;
  END IF;
  INSERT INTO liza.presence (board, name, pid, host, boot, since, secret)
    VALUES (p_board, p_name, (p_holder->>'pid')::int, p_holder->>'host', p_holder->>'boot',
            p_holder->>'since', sha256(convert_to(p_secret, 'UTF8')))
    ON CONFLICT (board, name) DO UPDATE SET pid = EXCLUDED.pid, host = EXCLUDED.host, boot = EXCLUDED.boot,
      since = EXCLUDED.since, secret = EXCLUDED.secret;
  RETURN true;
END $$;
CREATE FUNCTION liza.live_names(p_board text)
RETURNS TABLE (name text, pid int, host text, boot text, since text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  SELECT one.name, one.pid, one.host, one.boot, one.since FROM liza.presence one
  WHERE one.board = p_board AND EXISTS (
    SELECT FROM pg_locks held WHERE held.locktype = 'advisory' AND held.objsubid = 1 AND held.granted
      AND held.database = (SELECT oid FROM pg_database WHERE datname = current_database())
      AND (held.classid::bigint << 32 | held.objid::bigint) = liza.key(p_board, one.name)) $$;
CREATE FUNCTION liza.remove_stale(p_board text) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  DELETE FROM liza.presence WHERE board = p_board AND name NOT IN (SELECT name FROM liza.live_names(p_board)) $$;

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA liza FROM PUBLIC;
