"""Pictures of saved reports: curves of `bench run`, heat maps of `bench pairs`."""
