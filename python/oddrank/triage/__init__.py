"""Names the rank that stuck or ended a job, from the files that the job left."""
