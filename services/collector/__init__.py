"""The collector: steps 1-4 (discover, classify, collect, build the state) and the second look of step 8.

In: collect request, actuation (for the previous action). Out: state (before, after).
"""
