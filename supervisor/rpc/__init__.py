"""JSON-RPC over a Unix socket: framing, peers and roles, methods, subscriptions, OpenRPC.

It knows lifecycle by its interface (``supervisor.lifecycle.api``) and the bus; nothing behind them.
"""
