"""What people type: one module per verb, one for how things are shown. Data on stdout, talk on stderr."""
