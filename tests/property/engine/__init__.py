"""What must hold of the engine's state and verdicts, on drawn clusters."""
