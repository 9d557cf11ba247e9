"""Says from a training's log when loss or speed went wrong."""
