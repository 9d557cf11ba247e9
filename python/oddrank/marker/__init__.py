"""`@pytest.mark.ranks`: starts a test's ranks, watches them, judges them, ends them."""
