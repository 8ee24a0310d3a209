"""The rules on packages of `bitnest-package-v1`."""
