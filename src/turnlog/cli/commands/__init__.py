"""The commands, a module for each group of them. `turnlog.cli.app` names them and imports what it runs."""
