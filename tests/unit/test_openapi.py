"""The OpenAPI document and the route table say the same."""

from __future__ import annotations

import pytest

from dgsf.core.options import TABLE
from dgsf.errors import MethodNotAllowed, NotFound, UsageError, all_errors
from gateway.openapi import document, errors_of, http_errors
from gateway.routes import ROUTES, match

DOCUMENT = document(ROUTES, "1.2.3")
OPERATIONS = {
    (method.upper(), path): operation for path, item in DOCUMENT["paths"].items() for method, operation in item.items()
}


def test_every_route_is_documented_and_nothing_else():
    assert set(OPERATIONS) == {(route.method, route.pattern) for route in ROUTES}
    assert len(OPERATIONS) == len(ROUTES)


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.name)
def test_a_documented_address_leads_to_its_route(route):
    path = route.pattern.replace("{name}", "demo.echo").replace("{key_id}", "abc")
    found = match(route.method, path)
    assert found.route is route
    assert set(found.parameters) == {
        p["name"] for p in OPERATIONS[route.method, route.pattern]["parameters"] if p["in"] == "path"
    }


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.name)
def test_statuses_and_codes_come_from_the_error_table(route):
    responses = OPERATIONS[route.method, route.pattern]["responses"]
    told = {(int(status), code) for status, item in responses.items() for code in item.get("x-codes", [])}
    assert told == {(kind.status, kind.code) for kind in errors_of(route)}
    assert str(route.status) in responses


def test_the_whole_error_table_is_printed_without_local_mistakes():
    told = {item["code"] for item in DOCUMENT["x-errors"]}
    assert told == {code for code, kind in all_errors().items() if not issubclass(kind, UsageError)}
    assert told == set(http_errors())


def test_every_option_of_a_function_is_printed():
    assert [item["name"] for item in DOCUMENT["x-options"]] == list(TABLE)


def test_every_reference_leads_to_a_schema():
    def references(value):
        if isinstance(value, dict):
            if "$ref" in value:
                yield value["$ref"]
            for item in value.values():
                yield from references(item)
        elif isinstance(value, list):
            for item in value:
                yield from references(item)

    found = set(references(DOCUMENT))
    assert found
    assert {ref.rsplit("/", 1)[1] for ref in found} <= set(DOCUMENT["components"]["schemas"])


def test_operation_ids_differ():
    ids = [operation["operationId"] for operation in OPERATIONS.values()]
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize("path", ["/nothing", "/v1/functions//invoke", "/v1/functions/a/b/invoke", "/v1", "", "//"])
def test_unknown_addresses_are_not_found(path):
    with pytest.raises(NotFound):
        match("GET", path)


def test_a_wrong_method_names_the_right_ones():
    with pytest.raises(MethodNotAllowed) as caught:
        match("PATCH", "/v1/functions/demo.echo")
    assert caught.value.details["allow"] == "PUT, GET, DELETE"


def test_names_are_unquoted_and_queries_left_out():
    assert match("GET", "/v1/functions/demo%2Eecho?x=1").parameters == {"name": "demo.echo"}


def test_head_is_answered_where_get_is():
    assert match("HEAD", "/healthz").route.pattern == "/healthz"
