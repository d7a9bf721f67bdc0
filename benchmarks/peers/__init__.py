"""What a conversation costs that is kept with turnlog, and with the stores of other libraries."""
