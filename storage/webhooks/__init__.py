"""How webhooks are kept (0009_webhooks.sql). Heads are locked first, in the order of their ids, then anything else."""
