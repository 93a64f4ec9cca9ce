"""`upwell demo`: shortens results and adds memories, with a server and files from the package."""
