"""CPU kernels in C++, compiled on the machine that runs them.

`build` compiles them into the user's cache, `library` loads them, `kernels` calls them. Where they
cannot be had, the portable operations take their place.
"""
