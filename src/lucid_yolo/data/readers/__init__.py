"""Data set formats, each read into image records and a row account."""
