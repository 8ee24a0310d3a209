"""A corpus of manifests, valid and invalid, with what a validator has to find in each."""
