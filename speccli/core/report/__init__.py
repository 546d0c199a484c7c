"""A bench as a report: Markdown, one HTML file with charts, JSON, and a skill card."""
