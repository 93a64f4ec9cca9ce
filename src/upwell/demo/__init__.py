"""`upwell demo`: the main job, on a server and files that ship with the package."""
