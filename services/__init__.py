"""The five processes of the loop. Each has the same anatomy and none imports another: they meet in `schemas`."""
