"""Anthropic's Messages: field table, parsing, wording, token counts, models, errors. See docs/anthropic.md.

Source of every shape here: Anthropic's API reference, versions 2023-06-01 and 2026-10-21, and the types of its official
client, 2.14.
"""
