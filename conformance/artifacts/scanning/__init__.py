"""What is found in the bytes of tensors, whatever the format."""
