"""What happens to a job right now, and what is kept of it before it is gone."""
