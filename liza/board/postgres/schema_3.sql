-- What a task waits for, so that a task whose turn has not come starts no machine.
ALTER TABLE liza.task ADD COLUMN waits_for text[] NOT NULL DEFAULT '{}';

CREATE FUNCTION liza.follow_dependencies(p_board text, p_line json) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE changed record; tasks json := p_line->'put'->'tasks';
BEGIN
  FOR changed IN
    SELECT one.value->>'id' AS id, one.value->'depends_on' AS names FROM json_array_elements(
      CASE WHEN json_typeof(tasks) = 'array' THEN tasks ELSE '[]' END) AS one(value)
    UNION ALL
    SELECT one.key, one.value->'depends_on' FROM json_each(
      CASE WHEN json_typeof(tasks) = 'object' THEN tasks ELSE '{}' END) AS one(key, value)
  LOOP
    CONTINUE WHEN changed.names IS NULL;
    UPDATE liza.task SET waits_for = ARRAY(SELECT json_array_elements_text(
        CASE WHEN json_typeof(changed.names) = 'array' THEN changed.names ELSE '[]' END))
      WHERE board = p_board AND id = changed.id;
  END LOOP;
END $$;
REVOKE ALL ON FUNCTION liza.follow_dependencies(text, json) FROM PUBLIC;

DO $$
DECLARE known record;
BEGIN
  FOR known IN SELECT board, line::json AS line FROM liza.entry ORDER BY board, revision LOOP
    PERFORM liza.follow_dependencies(known.board, known.line);
  END LOOP;
END $$;

CREATE OR REPLACE FUNCTION liza.add_line(p_board liza.board, p_operation uuid, p_line text, p_secret text)
RETURNS liza.board LANGUAGE plpgsql AS $$
DECLARE said json := p_line; is_owner boolean := liza.is_owner();
BEGIN
  p_board.sum := left(encode(sha256(convert_to(p_board.sum || left(p_line, -26), 'UTF8')), 'hex'), 16);
  p_board.revision := p_board.revision + 1;
  p_board.ends := p_board.ends + octet_length(convert_to(p_line, 'UTF8')) + 1;
  p_board.at := said->>'at';
  IF right(p_line, 26) <> ',"sum":"' || p_board.sum || '"}'
     OR (said->>'revision')::bigint <> p_board.revision THEN
    RAISE EXCEPTION 'the line does not follow on revision %', p_board.revision - 1 USING ERRCODE = 'LZ005';
  END IF;
  IF NOT is_owner AND (said->'put'->'config' IS NOT NULL OR said->'put'->'workflow' IS NOT NULL) THEN
    RAISE EXCEPTION 'only the owner of the board may change its settings' USING ERRCODE = 'LZ003';
  END IF;
  PERFORM liza.follow_tasks(p_board.name, said, p_secret, is_owner);
  PERFORM liza.follow_dependencies(p_board.name, said);
  INSERT INTO liza.entry (board, revision, ends, sum, operation, at, line)
    VALUES (p_board.name, p_board.revision, p_board.ends, p_board.sum, p_operation, p_board.at, p_line);
  UPDATE liza.board SET revision = p_board.revision, sum = p_board.sum, ends = p_board.ends, at = p_board.at
    WHERE name = p_board.name;
  RETURN p_board;
END $$;

-- A task that is not on the board any more has ended, and nobody waits for it.
CREATE OR REPLACE FUNCTION liza.waiting_tasks(p_board text) RETURNS bigint
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  SELECT count(*) FROM liza.task one WHERE one.board = p_board
    AND one.status IN ('IDLE', 'READY_FOR_REVIEW', 'REJECTED', 'APPROVED', 'INTEGRATION_FAILED')
    AND (one.holder IS NULL OR one.expires < clock_timestamp())
    AND (one.status <> 'IDLE' OR NOT EXISTS (
      SELECT FROM liza.task other WHERE other.board = p_board AND other.id = ANY (one.waits_for)
        AND other.status NOT IN ('MERGED', 'COMPLETE', 'NOTHING_TO_DO')))
    AND NOT EXISTS (SELECT FROM liza.switch thrown WHERE thrown.board = p_board) $$;
