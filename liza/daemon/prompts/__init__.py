"""What agents are told, as Markdown with strict placeholders; `liza.daemon.prompting` puts it together."""
