"""What is right: the normative text, the manifest models and the operations of a backend."""
