"""What happens to a job while it runs, and what is kept of it before it is gone."""
