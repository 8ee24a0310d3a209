"""The format bitnest-package, one subpackage per version."""
