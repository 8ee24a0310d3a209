"""Golden vectors and the programs that write and check them."""
