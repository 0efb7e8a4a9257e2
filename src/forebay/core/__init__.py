"""The nouns every layer shares: requests, sampling parameters, steps, messages, outputs and the clock."""
