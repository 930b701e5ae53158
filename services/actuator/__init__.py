"""The actuator: step 7 (write, read back, or say why not), and the way back to every original.

In: state (for the pods), verdict, command, heartbeat of the guard. Out: actuation.
"""
