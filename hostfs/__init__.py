"""The kernel's files: cgroup tree, pod paths, cpu.stat, pressure, run queue. Reads only; nothing here ever writes.

`parse_*(text)` is pure and never raises, whatever the text; readers are thin and take the root path as an argument.
Expected absence (a group that is gone, pressure accounting that is off) is a value, never an exception.
"""
