-- The key that merges are signed with, one for all hosts: whoever made the first one offered it. Readers do
-- not see it, and nobody changes it.
CREATE TABLE liza.signing_key (board text PRIMARY KEY REFERENCES liza.board, value text NOT NULL);
CREATE FUNCTION liza.share_key(p_board text, p_offer text) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  INSERT INTO liza.signing_key (board, value) VALUES (p_board, p_offer) ON CONFLICT DO NOTHING;
  RETURN (SELECT value FROM liza.signing_key WHERE board = p_board);
END $$;
REVOKE ALL ON FUNCTION liza.share_key(text, text) FROM PUBLIC;
