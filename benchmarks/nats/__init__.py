"""The bars for NATS: Holdfast beside raw nats-py and taskiq-nats, on one server, in turn."""
