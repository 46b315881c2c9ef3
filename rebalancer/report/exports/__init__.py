"""The report in formats of other tools: Markdown, CSV, openreports.io."""
