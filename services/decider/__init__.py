"""The decider: steps 5 (decide within the budget) and 10 (learn). The only process that imports River.

In: state, verdict (for the change budget and the mode), reward (durable). Out: action.
"""
