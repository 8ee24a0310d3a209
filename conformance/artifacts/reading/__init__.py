"""Reading a checkpoint: folders, the Hub, headers and bytes of tensor files. Nothing is trusted."""
