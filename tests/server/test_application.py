"""The API against its own schema: whatever fits the schema, or does not, is answered, and never with a 5xx."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error

from tests.server.fixtures import Http
from tests.servers.serving import ServerThread

EXAMPLES = int(os.environ.get("HOLDFAST_FUZZ", "8"))  # of each operation; HOLDFAST_FUZZ=500 for a long run


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", ["file", "postgres"])
def test_nothing_that_fits_the_schema_is_a_server_error(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url = f"file://{tmp_path}/store" if kind == "file" else request.getfixturevalue("postgres").url
    with ServerThread(url) as server:
        http = Http(server.address)
        http.queue("q", max_attempts=2)
        schema = schemathesis.openapi.from_dict(http.get("/schema").body)
        schema.config.base_url = server.address
        tried = 0
        for result in schema.get_all_operations():
            operation = result.ok()

            @settings(
                max_examples=EXAMPLES,
                deadline=None,
                derandomize=True,
                database=None,
                suppress_health_check=list(HealthCheck),
            )
            def probe(case: schemathesis.Case) -> None:
                if "queue" in case.path_parameters:
                    case.path_parameters["queue"] = "q"  # most names are of no queue, and would show nothing
                if (case.body or {}) and isinstance(case.body, dict) and "wait" in case.body:
                    case.body["wait"] = 0
                if case.query and "wait" in case.query:
                    case.query["wait"] = 0
                case.call_and_validate(checks=[not_a_server_error])

            schemathesis_given(operation, probe)
            tried += 1
        assert tried > 15
        assert http.get("/health/ready").status == 200


def schemathesis_given(operation: schemathesis.APIOperation, probe: object) -> None:
    from hypothesis import given

    given(case=operation.as_strategy())(probe)()  # type: ignore[operator]  # a test function


def test_the_schema_names_every_route(tmp_path: Path) -> None:
    with ServerThread(f"file://{tmp_path}/store") as server:
        document = Http(server.address).get("/schema").body
        assert {path for path in document["paths"] if "messages" in path} == {
            "/api/v1/queues/{queue}/messages",
            "/api/v1/queues/{queue}/messages/{id}",
            "/api/v1/queues/{queue}/messages/{id}/cancel",
            "/api/v1/queues/{queue}/messages/{id}/change",
            "/api/v1/queues/{queue}/messages/{id}/take-back",
            "/api/v1/queues/{queue}/messages/{id}/replay",
        }
