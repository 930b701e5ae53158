"""The rewarder: steps 8 (wait, then have the collector look again) and 9 (reward), or why there is none.

In: state, action, verdict, actuation. Out: a collect request to the collector, reward.
"""
