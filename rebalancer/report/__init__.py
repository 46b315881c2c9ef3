"""A plan as something to read: terminal, JSON, YAML, HTML, Markdown and more, all from `document`."""
