"""What agents are told, as Markdown with strict placeholders; `liza.prompting` puts it together."""
