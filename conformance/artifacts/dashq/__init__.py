"""The rules on checkpoints of `dashq-packed-linear`."""
