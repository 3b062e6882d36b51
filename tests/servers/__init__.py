"""Real servers for tests, fault runs and benchmarks: started on free ports, stopped by process id."""
