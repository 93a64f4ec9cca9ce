"""What `upwell setup` changes, proves and undoes; settings, servers and logins also one by one."""
