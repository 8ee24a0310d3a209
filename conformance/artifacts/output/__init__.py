"""Reports and inspections as text, JSON and SARIF."""
