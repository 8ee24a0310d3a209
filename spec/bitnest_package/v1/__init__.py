"""bitnest-package-v1."""
