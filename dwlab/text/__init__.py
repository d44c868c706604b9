"""Text for readers: tables in Markdown and HTML, and what commands print on a terminal."""
