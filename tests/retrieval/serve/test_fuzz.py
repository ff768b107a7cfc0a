"""Strangers at the door: the API's whole description by schemathesis, and uploads bent by
hypothesis."""

import numpy as np
import pytest

pytestmark = pytest.mark.slow

hypothesis = pytest.importorskip("hypothesis")
from hypothesis import HealthCheck, given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from vicinal.retrieval.serve.server import create_application  # noqa: E402

ALL_CHECKED = settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[
        HealthCheck.function_scoped_fixture,
        HealthCheck.too_slow,
        HealthCheck.filter_too_much,
    ],
)


@pytest.mark.parametrize("mode", ["POSITIVE", "NEGATIVE"])
def test_every_operation_answers_as_described_whatever_is_asked(library, mode):
    # Here: it takes seconds, also of those who leave this test out.
    schemathesis = pytest.importorskip("schemathesis")
    from schemathesis.specs.openapi.checks import positive_data_acceptance

    application = create_application(library, hosts=["testserver"])
    schema = schemathesis.openapi.from_asgi("/openapi.json", application)
    asked = []
    for operation in (result.ok() for result in schema.get_all_operations()):
        strategy = operation.as_strategy(getattr(schemathesis.GenerationMode, mode))

        @ALL_CHECKED
        @given(case=strategy)
        def ask(case):
            answer = case.call()
            asked.append(answer.status_code)
            # That a body is a picture, or a vector of the collection's length, no schema can say.
            case.validate_response(answer, excluded_checks=[positive_data_acceptance])

        try:
            ask()
        # An operation without parameters cannot be asked wrongly.
        except hypothesis.errors.Unsatisfiable:
            assert mode == "NEGATIVE"
    assert len(asked) > 200 and {200, 422} <= set(asked)


@pytest.mark.parametrize("kind", ["jpeg", "png", "webp", "gif", "bmp"])
def test_a_bent_picture_is_answered_or_rejected_and_the_next_one_is_answered(
    client, kind, drawn, as_bytes
):
    whole = as_bytes(drawn("disc", np.random.default_rng(1)), kind)

    @settings(ALL_CHECKED, max_examples=150)
    @given(
        places=st.lists(
            st.tuples(st.integers(0, len(whole) - 1), st.integers(0, 255)), max_size=12
        ),
        cut=st.integers(0, len(whole)),
        tail=st.binary(max_size=64),
    )
    def bend(places, cut, tail):
        data = bytearray(whole)
        for place, value in places:
            data[place] = value
        answer = client.post("/api/search/image?k=2", content=bytes(data[:cut]) + tail)
        assert answer.status_code in (200, 413, 415, 422), answer.text
        if answer.status_code != 200:
            assert isinstance(answer.json()["detail"], str)

    bend()
    assert client.post("/api/search/image?k=2", content=whole).status_code == 200
