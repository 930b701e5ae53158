"""The decider's pure core: arms, mask and policies. Values in, values out; no clock, bus, files or global random.

Nothing here imports river or numpy at import time of the package: only the policy that is chosen pays for them.
"""
