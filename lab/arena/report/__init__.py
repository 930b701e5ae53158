"""The report of a bench: tables for a terminal, and an HTML file that stands alone. Pure: values in, text out."""
