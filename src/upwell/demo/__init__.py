"""`upwell demo`: shortens results and adds memories. The server and its files are part of the
package."""
