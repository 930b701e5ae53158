"""Off-policy evaluation: what another policy would have earned on the cycles that a log recorded. Pure, numpy only.

`evaluate.evaluate` is the whole of it; docs/evaluation.md says what each estimator answers and when it refuses.
"""
