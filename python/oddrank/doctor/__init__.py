"""What is built, loaded, missing, and what to type: asked in child processes, which may hang."""
