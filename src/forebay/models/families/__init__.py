"""Families: each file turns one family's configuration into a DecoderSpec and says how its weights are named."""
