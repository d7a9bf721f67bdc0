"""Other people's formats, and turnlog's own for moving logs between stores."""
