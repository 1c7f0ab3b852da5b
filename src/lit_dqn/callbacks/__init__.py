"""What happens between rounds, in this order: points, evaluation, checkpoint, stop signals.

A resumable checkpoint is taken after the round's point and after the evaluation due at that round. What
the *end* of a run adds off the schedule (a last point, a last evaluation) comes after the checkpoint, so
that a run that is extended later has the same curves as one that was long from the start.
"""
