"""The command line: one module per command; nothing heavy is imported before a command needs it."""
