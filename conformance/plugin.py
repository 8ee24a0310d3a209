"""pytest plugin: backend selection, capability gate, report."""
