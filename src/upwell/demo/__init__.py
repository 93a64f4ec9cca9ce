"""The `upwell demo` command, with its server and the files that the server reads."""
