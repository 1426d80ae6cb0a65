-- Whoever takes a task off the board ends its lease as well, and may do so no more than otherwise.
CREATE OR REPLACE FUNCTION liza.follow_tasks(p_board text, p_line json, p_secret text, p_is_owner boolean)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  changed record; field record; tasks json := p_line->'put'->'tasks';
  gone text[] := ARRAY(SELECT json_array_elements_text(coalesce(p_line->'gone'->'tasks', '[]')));
BEGIN
  FOR changed IN
    SELECT one.value->>'id' AS id, one.value FROM json_array_elements(
      CASE WHEN json_typeof(tasks) = 'array' THEN tasks ELSE '[]' END) AS one(value)
    UNION ALL
    SELECT one.key, one.value FROM json_each(
      CASE WHEN json_typeof(tasks) = 'object' THEN tasks ELSE '{}' END) AS one(key, value)
  LOOP
    INSERT INTO liza.task (board, id) VALUES (p_board, changed.id) ON CONFLICT DO NOTHING;
    FOR field IN SELECT key, value FROM json_each(changed.value) WHERE key IN ('status', 'lease') LOOP
      IF field.key = 'status' THEN
        UPDATE liza.task SET status = field.value #>> '{}' WHERE board = p_board AND id = changed.id;
        CONTINUE;
      END IF;
      IF NOT p_is_owner THEN
        PERFORM liza.check_lease(p_board, changed.id, field.value, p_secret);
      END IF;
      UPDATE liza.task SET (holder, token, expires)
        = (field.value->>'holder', field.value->>'token', (field.value->>'expires')::timestamptz)
        WHERE board = p_board AND id = changed.id;
    END LOOP;
  END LOOP;
  IF NOT p_is_owner THEN
    PERFORM liza.check_lease(p_board, one.id, NULL, p_secret) FROM unnest(gone) AS one(id);
  END IF;
  DELETE FROM liza.task WHERE board = p_board AND id = ANY (gone);
END $$;

-- A row of another name would stop machines from being started, and nobody could take it back.
DELETE FROM liza.switch WHERE name NOT IN ('ABORT', 'PAUSE', 'CHECKPOINT');
ALTER TABLE liza.switch ADD CONSTRAINT known_switch CHECK (name IN ('ABORT', 'PAUSE', 'CHECKPOINT'));
