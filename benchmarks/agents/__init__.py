"""The same agent with turnlog and with other libraries, and what is left of it after a kill. See `compare.py`."""
