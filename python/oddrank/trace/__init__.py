"""Where each rank is and was. So far: the collective recorder, `oddrank.trace.collectives`."""
