"""What travels through the pipeline. Money is a whole number of cents."""

from typing import Annotated

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

ORDER_ID_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9_-]{2,63}$"

OrderId = Annotated[str, Field(pattern=ORDER_ID_PATTERN)]
Cents = Annotated[int, Field(ge=0)]


class Item(BaseModel):
    """One line of an order."""

    model_config = ConfigDict(extra="forbid")

    sku: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")
    quantity: int = Field(ge=1, le=1000)


class NewOrder(BaseModel):
    """The body of `POST /orders`: its form only. What it means is checked by the step that validates.

    Attributes:
        order_id: The client's own id; made up if left out.
        items: What is ordered.
        total: What the client expects to pay.
        card: Token of the payment card; `declined` stands for a card that is.
        fail_payment_times: For trying things out: so many attempts to charge fail before one succeeds.
    """

    model_config = ConfigDict(extra="forbid")

    order_id: OrderId | None = None
    items: list[Item]
    total: Cents
    card: str = Field(default="card-on-file", min_length=1, max_length=64)
    fail_payment_times: int = Field(default=0, ge=0)


class Product(BaseModel):
    """An entry of the catalogue: state scope `catalogue`, the SKU as key."""

    name: str
    price: Cents


class ValidateOrder(BaseModel):
    """The message to `orders::validate`."""

    order_id: str
    items: list[Item]
    total: int
    card: str
    fail_payment_times: int = 0


class ChargePayment(BaseModel):
    """The message to `orders::charge-payment`."""

    order_id: str
    total: int
    card: str
    fail_payment_times: int = 0


class ShipOrder(BaseModel):
    """The message to `orders::ship`."""

    order_id: str
    transaction_id: str


class OrderFulfilled(BaseModel):
    """The event on topic `order.fulfilled`."""

    order_id: str
    tracking_number: str
    carrier: str


class CronTick(BaseModel):
    """What a cron trigger hands over, as far as it is needed here."""

    scheduled_time: AwareDatetime
