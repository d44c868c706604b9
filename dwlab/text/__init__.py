"""Text for readers: tables in Markdown and HTML, drawings with words, and what commands print on a terminal."""
