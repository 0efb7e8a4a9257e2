"""Tool calls: the request's tools checked, the formats models write calls in, and what a grammar must enforce."""
