"""The guard: steps 6 (validate) and 11 (roll back). Nothing is written without its word.

In: state, action, actuation, command. Out: verdict, command (rollback, restore).
"""
