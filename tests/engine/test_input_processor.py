from __future__ import annotations

import msgspec
import pytest

from forebay.core.clock import ManualClock
from forebay.core.messages import EngineInfo
from forebay.core.sampling_params import SamplingParams
from forebay.engine.frontend import TextModel
from forebay.engine.input_processor import InputProcessor, Prompt
from forebay.errors import ContextLengthError, InvalidValueError

INFO = EngineInfo(model_name="m", max_model_len=32, num_blocks=8, block_size=4, vocab_size=512, hidden_size=64,
                  profile_digest="d", answer_class="class", default_max_tokens=10, max_requests=2,
                  max_waiting=3)  # fmt: skip


@pytest.fixture
def inputs(text_model: TextModel) -> InputProcessor:
    return InputProcessor(text_model.tokenizer, INFO, text_model.digest, ManualClock(7))


def test_text_and_ids_become_the_same_request(inputs: InputProcessor) -> None:
    ids = inputs.tokenize("Once upon a time")
    assert ids[0] == 1  # BOS
    assert inputs.tokenize("Once upon a time", add_special_tokens=False) == ids[1:]
    assert inputs.tokenize(ids) == ids
    request = inputs.request(ids, SamplingParams(max_tokens=3), request_id="r", tenant="t", received_ns=5)
    assert (request.prompt_token_ids, request.max_tokens, request.request_id) == (ids, 3, "r")
    assert (request.received_ns, request.tokenized_ns) == (5, 7)


@pytest.mark.parametrize(
    ("prompt", "says"),
    [
        ([1, 512], "from 0 to 511, got 512"),
        ([-1], "got -1"),
        ([1, True], "got True"),
        ([], "prompt is empty"),
        (b"abc", "text or a list of token ids, got b'abc'"),
        (None, "got None"),
        (5.0, "got 5.0"),
    ],
)
def test_wrong_prompts(inputs: InputProcessor, prompt: Prompt, says: str) -> None:
    with pytest.raises(InvalidValueError, match=says) as caught:
        inputs.tokenize(prompt)
    assert caught.value.param == "prompt"


def test_a_token_the_model_has_no_row_for_is_refused(text_model: TextModel) -> None:
    """Tokenizers know tokens that the model was never resized for; in a step they would fail all its requests."""
    info = msgspec.structs.replace(INFO, vocab_size=300)
    inputs = InputProcessor(text_model.tokenizer, info, text_model.digest, ManualClock(7))
    for prompt in ([1, 300], "Once upon a time"):
        with pytest.raises(InvalidValueError, match="from 0 to 299, got "):
            inputs.tokenize(prompt)


def test_a_text_far_too_long_is_refused_before_it_is_tokenized(inputs: InputProcessor) -> None:
    with pytest.raises(ContextLengthError, match=r"at least \d+ tokens and the context length is 32") as caught:
        inputs.tokenize("Once \ud800" * 2**18)
    assert caught.value.param == "prompt"


@pytest.mark.parametrize(("num_prompt", "asked", "given"), [(4, None, 10), (25, None, 7), (31, None, 1), (4, 28, 28)])
def test_max_tokens(inputs: InputProcessor, num_prompt: int, asked: int | None, given: int) -> None:
    assert inputs.request([1] * num_prompt, SamplingParams(max_tokens=asked)).max_tokens == given


@pytest.mark.parametrize(
    ("num_prompt", "asked", "param", "says"),
    [
        (
            4,
            29,
            "max_tokens",
            "has 4 tokens and max_tokens is 29, together 33, .* is 32: ask for at most 28",
        ),
        (32, None, "prompt", "the prompt has 32 tokens and the context length is 32: shorten the prompt to 31"),
        (40, 1, "prompt", "the prompt has 40 tokens"),
    ],
)
def test_too_long(inputs: InputProcessor, num_prompt: int, asked: int | None, param: str, says: str) -> None:
    with pytest.raises(ContextLengthError, match=says) as caught:
        inputs.request([1] * num_prompt, SamplingParams(max_tokens=asked))
    assert caught.value.param == param


def test_seed_and_id_are_drawn_when_absent(inputs: InputProcessor) -> None:
    one, other = (inputs.request([1], SamplingParams()) for _ in range(2))
    assert one.seed != other.seed
    assert all(0 <= request.seed < 2**63 for request in (one, other))
    assert one.request_id != other.request_id
    assert inputs.request([1], SamplingParams(seed=-5)).seed == -5


@pytest.mark.parametrize(("param", "says"), [("request_id", "must not contain ':', got 'a:0'"), ("n", "use n <= 3")])
def test_what_no_request_may_have(inputs: InputProcessor, param: str, says: str) -> None:
    """The engine calls the children of a request ID:0, ID:1 ..., and queues all of them or none."""
    given = {"request_id": "a:0"} if param == "request_id" else {}
    with pytest.raises(InvalidValueError, match=says) as caught:
        inputs.request([1], SamplingParams(n=3 + (param == "n")), **given)
    assert caught.value.param == param
    assert inputs.request([1], SamplingParams(n=3), request_id="a-0").request_id == "a-0"


def test_namespace_tells_apart_all_that_changes_hidden_states_or_trust(text_model: TextModel) -> None:
    def namespace(tenant: str = "", cache_salt: str = "", answer_class: str = "class", digest: str = "x") -> str:
        info = msgspec.structs.replace(INFO, answer_class=answer_class)
        inputs = InputProcessor(text_model.tokenizer, info, digest, ManualClock())
        return inputs.request([1], SamplingParams(), tenant=tenant, cache_salt=cache_salt).namespace

    assert namespace() == namespace()
    salted = {namespace(cache_salt="a"), namespace(tenant="a", cache_salt="a"), namespace(tenant="a")}
    assert len({namespace(), *salted, namespace(answer_class="b"), namespace(digest="y")}) == 6
