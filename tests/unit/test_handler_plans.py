"""What a handler is called with, worked out once at registration."""

from __future__ import annotations
import __future__

import functools
import sys
from collections.abc import Callable
from typing import Annotated, Any, cast

import pytest
from pydantic import BaseModel, Field, field_validator

from iii_runtime import ApiRequest, InputInvalidError, RegistrationError
from iii_runtime.core.handler import plan_raw_handler, plan_typed_handler, source_of
from iii_runtime.core.invocation import Source
from iii_runtime.core.payload import Json


class Item(BaseModel):
    sku: str
    quantity: int = Field(gt=0)


class Order(BaseModel):
    order_id: str
    items: list[Item] = []

    @field_validator("order_id")
    @classmethod
    def is_known(cls, value: str) -> str:
        if value == "broken":
            raise RuntimeError("the validator itself is broken")
        return value


REQUEST: dict[str, Json] = {"path": "/o/:id", "method": "POST", "body": {"order_id": "o1"}, "path_params": {"id": "1"}}


def raw(handler: Callable[..., Any], payload: Json = "data", metadata: Json = "meta") -> Any:
    return plan_raw_handler(handler).bind(payload, "direct", metadata)()


def typed(
    handler: Callable[..., Any], payload: Json = "data", source: Source = "direct", metadata: Json = "meta"
) -> Any:
    return plan_typed_handler(handler, "a::b").bind(payload, source, metadata)()


HINTED = """
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shop import Order

def handler(data: Order, metadata: list[Order]) -> Order:
    return data, metadata

class Owner:
    def handler(self, data: Order, metadata: list[Order]) -> Order:
        return data, metadata

    def __call__(self, data: Order, metadata: list[Order]) -> Order:
        return data, metadata
"""


def hinted_for_type_checkers(form: str) -> Callable[..., Any]:
    """Return a handler as a module has it that needs no `from __future__ import annotations`, from Python 3.14 on."""
    flags = 0 if sys.version_info >= (3, 14) else __future__.annotations.compiler_flag
    names: dict[str, Any] = {"__name__": "hinted"}
    exec(compile(HINTED, "hinted.py", "exec", flags, dont_inherit=True), names)  # noqa: S102 - the text above
    return cast("Callable[..., Any]", eval(form, names))  # noqa: S307 - one of four


class TestRawHandlers:
    def test_the_input_is_the_first_argument(self) -> None:
        assert raw(lambda data: data) == "data"
        assert raw(lambda data, /: data) == "data"
        assert raw(lambda data=None: data) == "data"
        assert raw(lambda *args: args) == ("data",)
        assert raw(lambda data, *rest, **options: (data, rest, options)) == ("data", (), {})

    def test_a_handler_may_take_nothing(self) -> None:
        assert raw(lambda: "called") == "called"

    def test_the_second_parameter_is_the_metadata_if_that_is_its_name(self) -> None:
        assert raw(lambda data, metadata: (data, metadata)) == ("data", "meta")
        assert raw(lambda data, metadata=None: (data, metadata)) == ("data", "meta")
        assert raw(lambda data, *, metadata: (data, metadata)) == ("data", "meta")
        assert raw(lambda data, meta=None: (data, meta)) == ("data", None)
        assert raw(lambda data, other=None, metadata=None: (data, other, metadata)) == ("data", None, None)

    def test_args_and_kwargs_never_get_the_metadata(self) -> None:
        assert raw(lambda data, *args, **kwargs: (data, args, kwargs)) == ("data", (), {})

    def test_the_first_parameter_is_the_input_whatever_its_name(self) -> None:
        assert raw(lambda metadata: metadata) == "data"

    def test_type_hints_are_not_looked_at(self) -> None:
        def handler(data: Order, metadata: Order) -> object:
            return data, metadata

        assert raw(handler, {"n": 1}) == ({"n": 1}, "meta")

    def test_hints_that_cannot_be_resolved_do_not_matter(self) -> None:
        def handler(data: Missing) -> object:  # type: ignore[name-defined]  # noqa: F821
            return data

        assert raw(handler) == "data"

    @pytest.mark.parametrize("form", ["handler", "partial(handler)", "Owner().handler", "Owner()"])
    def test_hints_that_a_type_checker_alone_can_resolve_do_not_matter(self, form: str) -> None:
        assert raw(hinted_for_type_checkers(form)) == ("data", "meta")

    def test_methods_partials_and_objects_are_handlers(self) -> None:
        class Shop:
            def handle(self, data: object) -> object:
                return "method", data

            def __call__(self, data: object, metadata: object) -> object:
                return "object", data, metadata

        assert raw(Shop().handle) == ("method", "data")
        assert raw(Shop()) == ("object", "data", "meta")
        assert raw(functools.partial(lambda fixed, data: (fixed, data), "fixed")) == ("fixed", "data")
        assert raw(len) == 4


class TestAsynchronousHandlers:
    def test_async_def_is_recognised_in_every_form(self) -> None:
        class Shop:
            async def handle(self, data: object) -> None: ...

            async def __call__(self, data: object) -> None: ...

        async def handler(data: object, more: object = None) -> None: ...

        for form in (handler, Shop().handle, Shop(), functools.partial(handler, more=1)):
            assert plan_raw_handler(form).is_async
            assert plan_typed_handler(form, "f").is_async

    def test_a_synchronous_wrapper_is_synchronous_whatever_it_wraps(self) -> None:
        """It may run the coroutine itself, as `asyncio.run` does, so it must not run in a loop."""

        async def inner(data: object) -> object:
            return data

        @functools.wraps(inner)
        def wrapper(data: object) -> object:
            return "ran"

        assert not plan_raw_handler(wrapper).is_async
        assert not plan_raw_handler(lambda data: inner(data)).is_async  # noqa: PLW0108 - a lambda is what is tested


class TestTypedHandlers:
    @pytest.mark.parametrize("source", ["direct", "queue", "topic", "state", "stream", "cron"])
    def test_a_model_is_read_from_the_payload(self, source: Source) -> None:
        def handler(order: Order) -> object:
            return order

        assert typed(handler, {"order_id": "o1"}, source) == Order(order_id="o1")

    def test_over_http_a_model_is_read_from_the_body(self) -> None:
        def handler(order: Order) -> object:
            return order

        assert typed(handler, REQUEST, "http") == Order(order_id="o1")

    def test_a_request_is_given_beside_a_model(self) -> None:
        def handler(order: Order, request: ApiRequest[Any], metadata: object) -> object:
            return order.order_id, request.path_params["id"], metadata

        def turned(request: ApiRequest[Any], order: Order) -> object:
            return order.order_id, request.method

        assert typed(handler, REQUEST, "http") == ("o1", "1", "meta")
        assert typed(turned, REQUEST, "http") == ("o1", "POST")

    def test_an_untyped_parameter_gets_the_raw_input(self) -> None:
        def plain(data: dict[str, Any]) -> object:
            return data

        assert typed(lambda data: data, REQUEST, "http") == REQUEST
        assert typed(plain, {"n": 1}) == {"n": 1}
        assert typed(lambda data, metadata: (data, metadata)) == ("data", "meta")
        assert typed(lambda: "called") == "called"

    def test_a_default_does_not_take_the_input_away(self) -> None:
        def with_model(order: Order = Order(order_id="default")) -> object:  # noqa: B008
            return order.order_id

        assert typed(lambda data=None: data) == "data"
        assert typed(with_model, {"order_id": "o1"}) == "o1"

    def test_further_parameters_keep_their_defaults(self) -> None:
        def handler(
            request: ApiRequest[Any], limit: int = 5, order: Order | None = None, *, dry: bool = False
        ) -> object:
            return request.method, limit, order and order.order_id, dry

        assert typed(handler, REQUEST, "http") == ("POST", 5, "o1", False)

    def test_metadata_is_the_sidecar_even_if_it_is_typed(self) -> None:
        def handler(data: dict[str, Any], metadata: Item) -> object:
            return data, metadata

        def named(metadata: Item) -> object:
            return metadata.sku

        assert typed(handler, {"n": 1}) == ({"n": 1}, "meta")
        assert typed(named, {"sku": "s", "quantity": 1}) == "s"

    @pytest.mark.parametrize(
        ("payload", "expected"),
        [(None, None), ({"order_id": "o1"}, Order(order_id="o1"))],
    )
    def test_a_model_may_be_optional(self, payload: Json, expected: Order | None) -> None:
        def handler(order: Order | None) -> object:
            return order

        assert typed(handler, payload) == expected

    def test_a_model_may_be_part_of_a_type(self) -> None:
        def many(items: list[Item]) -> object:
            return items

        def annotated(item: Annotated[Item, "for readers"]) -> object:
            return item

        item: Json = {"sku": "s", "quantity": 2}
        assert typed(many, [item, item]) == [Item(sku="s", quantity=2)] * 2
        assert typed(annotated, item) == Item(sku="s", quantity=2)
        with pytest.raises(InputInvalidError, match=r"does not fit list: 0\.quantity: "):
            typed(many, [{"sku": "s", "quantity": 0}])

    def test_a_partial_of_a_typed_handler_is_typed(self) -> None:
        def handler(order: Order, more: object = None) -> object:
            return order, more

        assert typed(functools.partial(handler, more=1), {"order_id": "o1"}) == (Order(order_id="o1"), 1)

    def test_input_that_does_not_fit_names_every_problem(self) -> None:
        def handler(order: Order) -> object:
            return order

        with pytest.raises(InputInvalidError) as refusal:
            typed(handler, {"items": [{"sku": "s", "quantity": 0}]})
        assert refusal.value.code == "VALIDATION_FAILED"
        assert [problem["loc"] for problem in refusal.value.details] == [["order_id"], ["items", 0, "quantity"]]
        assert all(set(problem) == {"loc", "msg", "type"} for problem in refusal.value.details)
        assert refusal.value.message.startswith(
            "the input does not fit Order: order_id: Field required; items.0.quantity: "
        )

    @pytest.mark.parametrize("payload", [None, "text", [], 5])
    def test_input_of_another_kind_does_not_fit_either(self, payload: Json) -> None:
        def handler(order: Order) -> object:
            return order

        with pytest.raises(InputInvalidError, match="does not fit Order: input: "):
            typed(handler, payload)
        with pytest.raises(InputInvalidError):
            typed(handler, {**REQUEST, "body": payload}, "http")

    def test_a_broken_validator_is_no_invalid_input(self) -> None:
        def handler(order: Order) -> object:
            return order

        with pytest.raises(RuntimeError, match="the validator itself is broken"):
            typed(handler, {"order_id": "broken"})

    def test_a_request_needs_an_http_request(self) -> None:
        def handler(request: ApiRequest[Any]) -> object:
            return request

        with pytest.raises(InputInvalidError, match="takes an http request, and was called without one"):
            typed(handler, "no request")

    @pytest.mark.parametrize(
        "handler",
        [
            lambda data, other: None,
            lambda data, *, other: None,
            lambda *, data: None,
            cast("Callable[..., Any]", functools.partial(lambda a, b, c: None, 1)),
        ],
    )
    def test_a_parameter_that_nothing_can_be_passed_for_is_refused(self, handler: Callable[..., Any]) -> None:
        with pytest.raises(RegistrationError, match="'a::b': nothing can be passed for its parameter"):
            plan_typed_handler(handler, "a::b")

    def test_two_models_are_refused(self) -> None:
        def handler(order: Order, item: Item) -> None: ...

        with pytest.raises(RegistrationError, match="parameter 'item'"):
            plan_typed_handler(handler, "a::b")

    @pytest.mark.parametrize("form", ["handler", "partial(handler)", "Owner().handler", "Owner()"])
    def test_hints_that_a_type_checker_alone_can_resolve_are_refused(self, form: str) -> None:
        with pytest.raises(RegistrationError, match=r"name 'Order' is not defined\). Import the names they use"):
            typed(hinted_for_type_checkers(form))

    def test_hints_that_cannot_be_resolved_are_refused_with_the_place(self) -> None:
        def handler(data: Missing) -> None: ...  # type: ignore[name-defined]  # noqa: F821

        with pytest.raises(RegistrationError, match=r"test_handler_plans\.py:\d+: .*'Missing' is not defined"):
            plan_typed_handler(handler, "a::b")


def test_the_source_of_a_handler_is_its_line_even_behind_a_decorator() -> None:
    def handler(data: object) -> None: ...

    @functools.wraps(handler)
    def wrapper(data: object) -> None: ...

    line = handler.__code__.co_firstlineno
    assert source_of(handler) == source_of(wrapper) == f"{__file__}:{line}"
    assert source_of(functools.partial(handler)) == f"{__file__}:{line}"
    assert source_of(len) == repr(len)
