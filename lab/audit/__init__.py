"""The audit: who changed which pod's weight, when, why, on whose word, under which model. From the record alone."""
