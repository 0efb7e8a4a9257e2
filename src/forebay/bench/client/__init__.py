"""A load client for any OpenAI-compatible server: plays a Workload, records how each request looked."""
