"""Strangers at the door: the API's whole description by schemathesis, and uploads bent by
hypothesis."""

import pytest

pytestmark = pytest.mark.slow

hypothesis = pytest.importorskip("hypothesis")
from hypothesis import HealthCheck, given, settings  # noqa: E402

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

    application = create_application(library, writable=True, hosts=["testserver"])
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
