"""The servers behind the gateway: started, connected, supervised."""
