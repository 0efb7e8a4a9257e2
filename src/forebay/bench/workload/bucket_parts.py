"""The fixed words of the named buckets: questions, tools and schemas."""

from __future__ import annotations

from typing import Any

CHAT_QUESTIONS = (
    "What is this about? Explain it to someone new to it.",
    "Say the same in plain words and give an example.",
    "What would you ask the author of this, and why?",
    "Write a short summary, then list the main points.",
)

RAG_QUESTIONS = (
    "Using only the passage above, what are its main rules? Quote the lines you rely on.",
    "Using only the passage above, which terms does it define, and how?",
    "Using only the passage above, what can go wrong, and what happens then?",
)

NEEDLE_WORDS = ("amber", "basalt", "cedar", "delta", "ember", "fjord", "garnet", "harbor", "indigo", "juniper")

CITIES = ("Oslo", "Lima", "Nairobi", "Kyoto", "Quebec", "Porto", "Hanoi", "Tunis")


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    """A strict schema: every property is required, and no other is allowed."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _tool(name: str, description: str, properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "function",
        "function": {"name": name, "description": description, "parameters": _object(properties)},
    }


_CITY = {"type": "string", "description": "Name of a city"}

# (what the user wants of a city, the function that does it)
TOOLS = (
    (
        "What is the weather in {city} now?",
        _tool("get_weather", "Current weather", {"city": _CITY, "unit": {"enum": ["celsius", "fahrenheit"]}}),
    ),
    (
        "What time is it in {city}?",
        _tool("get_time", "Current local time", {"city": _CITY}),
    ),
    (
        "Find a hotel in {city} for 3 nights.",
        _tool("find_hotel", "Hotels with free rooms", {"city": _CITY, "nights": {"type": "integer", "minimum": 1}}),
    ),
    (
        "How do I get to {city} by train?",
        _tool("find_train", "Train connections", {"destination": _CITY, "direct_only": {"type": "boolean"}}),
    ),
)

# (name, schema); every answer holds each required name in quotes
SCHEMAS = (
    (
        "summary",
        _object({"title": {"type": "string"}, "points": {"type": "array", "items": {"type": "string"}}}),
    ),
    (
        "rating",
        _object({"clarity": {"type": "integer", "minimum": 1, "maximum": 5}, "reason": {"type": "string"}}),
    ),
    (
        "topic",
        _object(
            {
                "subject": {"enum": ["language", "library", "tools", "other"]},
                "technical": {"type": "boolean"},
                "terms": {"type": "array", "items": {"type": "string"}, "maxItems": 5},
            }
        ),
    ),
)
