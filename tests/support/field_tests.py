"""Which test shows what a field does, for docs/server.md; tests/server/test_fields.py sees to it that they exist."""

from __future__ import annotations

from forebay.server.openai import fields
from forebay.server.openai.fields import FieldTable, Kind

# of the body, and of objects inside it
TABLES: dict[str, FieldTable] = {
    "completions": fields.COMPLETION_FIELDS,
    "chat": fields.CHAT_FIELDS,
    "stream_options": fields.STREAM_OPTIONS_FIELDS,
    "response_format": fields.RESPONSE_FORMAT_FIELDS,
    "response_format.json_schema": fields.JSON_SCHEMA_FIELDS,
    "structured_outputs": fields.STRUCTURED_FIELDS,
    "messages[]": fields.MESSAGE_FIELDS,
    "messages[].content[]": fields.TEXT_PART_FIELDS,
    "messages[].tool_calls[]": fields.CALL_FIELDS,
    "messages[].tool_calls[].function": fields.FUNCTION_FIELDS,
}

_CLIENT = "tests/server/test_openai_client.py::test_"
_STRUCTURED = "tests/server/test_structured.py::test_"
_TOOLS = "tests/server/test_tools.py::test_"
_EFFECTS = "tests/server/test_field_effects.py::test_"
_MESSAGES = "tests/server/test_parse.py::test_messages_take_the_form_templates_expect"

# test -> the fields that it shows, by name, or by table and name where tables differ
_SHOWS = {
    "tests/server/test_http.py::test_another_model": "model",
    f"{_CLIENT}completion": "max_tokens temperature",
    f"{_CLIENT}our_own_sampling_fields": "top_p top_k min_p",
    f"{_EFFECTS}a_tiny_typical_mass_keeps_one_token": "typical_p",
    f"{_CLIENT}fields_that_change_logits": "presence_penalty frequency_penalty repetition_penalty logit_bias "
    "allowed_token_ids bad_token_ids min_tokens include_stop_str_in_output",
    f"{_EFFECTS}ends_can_be_added_and_taken_away": "ignore_eos stop_token_ids skip_special_tokens",
    f"{_CLIENT}seed_repeats_and_is_reported": "seed",
    f"{_CLIENT}stop_strings_end_the_text": "stop",
    f"{_CLIENT}several_prompts_and_choices_keep_their_order": "n",
    f"{_CLIENT}completion_logprobs": "completions.logprobs",
    f"{_CLIENT}chat_logprobs": "chat.logprobs top_logprobs",
    f"{_CLIENT}streamed_completion_equals_the_whole_one": "stream stream_options include_usage",
    f"{_CLIENT}prompt_shapes_agree": "prompt",
    f"{_CLIENT}best_of_gives_the_most_probable": "best_of",
    f"{_CLIENT}echo_begins_with_the_prompt": "echo",
    f"{_CLIENT}chat": "messages max_completion_tokens",
    f"{_CLIENT}neutral_values_change_nothing": "user metadata safety_identifier prompt_cache_key",
    f"{_STRUCTURED}a_schema_holds_the_answer": "response_format response_format.type response_format.json_schema name "
    "schema strict",
    f"{_EFFECTS}a_described_schema_is_the_same_schema": "description",
    f"{_STRUCTURED}every_way_to_say_it": "structured_outputs guided_json guided_regex guided_choice guided_grammar "
    "json regex choice grammar",
    f"{_EFFECTS}objects_and_tags_hold_the_output": "json_object structural_tag",
    f"{_TOOLS}a_required_call_parses_and_validates": "tools tool_choice parallel_tool_calls",
    f"{_TOOLS}a_budget_ends_the_reasoning": "thinking_token_budget chat_template_kwargs",
    f"{_TOOLS}an_answer_goes_on_from_the_last_message": "add_generation_prompt continue_final_message",
    "tests/server/test_tenants.py::test_a_cache_salt_divides_a_tenant_and_reaches_no_other": "cache_salt",
    "tests/server/test_parse.py::test_reasoning_effort_reaches_a_template_that_uses_it": "reasoning_effort",
    _MESSAGES: "role content messages[].name messages[].content[].type text tool_calls tool_call_id reasoning_content "
    "id messages[].tool_calls[].type function messages[].tool_calls[].function.name arguments",
}
SHOWN_BY = {field: test for test, names in _SHOWS.items() for field in names.split()}


def shown_by(table: str, name: str) -> str | None:
    """The test of a field of TABLES."""
    return SHOWN_BY.get(f"{table}.{name}", SHOWN_BY.get(name))


def unshown() -> list[str]:
    """Fields that are used or noted and have no test in the table."""
    return [
        f"{table}.{name}"
        for table, rows in TABLES.items()
        for name, row in rows.items()
        if row.kind is not Kind.REFUSED and shown_by(table, name) is None
    ]
