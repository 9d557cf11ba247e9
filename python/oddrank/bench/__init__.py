"""How fast are the collectives: sweeps over sizes, every size verified by value."""
