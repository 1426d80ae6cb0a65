"""What a run cost: as its agent reports it, else by its model's price, else by the length of its texts."""

from __future__ import annotations

from fnmatch import fnmatchcase
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Annotated, Final

from pydantic import Field

from liza.agents.protocol import did_nothing
from liza.domain.answer_parsing import reported_usage
from liza.domain.record import NonEmptyStr, Record
from liza.domain.spending import USD_DIGITS, Provenance, Usage
from liza.domain.yaml_parse import parse_yaml
from liza.system.run_control import RunEnding

if TYPE_CHECKING:
    from liza.agents.protocol import Agent, Brief, Reply
    from liza.system.run_control import RunControl

CHARACTERS_PER_TOKEN: Final = 3  # characters a token, fewer than usual: an estimate should rather be too high
# How often a prompt is read again, since an agent sends all of it with each call of a tool.
PROMPT_READS: Final = 5
# Tokens that one run is guessed to have said, at most: what a program prints beyond that no model wrote.
MOST_TOKENS_SAID: Final = 32_000
MILLION: Final = 1_000_000

Price = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class ModelPrice(Record):
    """USD for a million tokens of the models whose name fits *model*, a pattern as in a shell."""

    model: NonEmptyStr
    tokens_in: Price = Field(alias="in")
    tokens_out: Price = Field(alias="out")
    cached: Price | None = None


class PriceList(Record):
    date: NonEmptyStr
    source: NonEmptyStr
    default: ModelPrice  # for a model that is not in the list: dear, so that a cap is not passed unseen
    models: tuple[ModelPrice, ...]


@cache
def price_list() -> PriceList:
    """Return the prices that come with this Liza."""
    text = resources.files("liza.agents").joinpath("prices.yaml").read_text(encoding="utf-8")
    return PriceList.model_validate(parse_yaml(text).data)


def price_of(model: str) -> ModelPrice | None:
    """Return the price of *model*, with or without its provider before a slash; the first that fits."""
    name = model.casefold().rpartition("/")[2]
    return next((one for one in price_list().models if fnmatchcase(name, one.model)), None)


def cost(price: ModelPrice, tokens_in: int, tokens_out: int, cached: int = 0) -> float:
    cheap = min(cached, tokens_in)
    dear = price.tokens_in if price.cached is None else price.cached
    usd = (tokens_in - cheap) * price.tokens_in + cheap * dear + tokens_out * price.tokens_out
    return round(usd / MILLION, USD_DIGITS)


def with_cost(usage: Usage, model: str | None, prompt: str, text: str) -> Usage:
    """Return *usage* with what the run cost, and where that number comes from."""
    model = usage.model or model
    if usage.usd is not None:
        known = usage.provenance if usage.provenance is not Provenance.UNKNOWN else Provenance.REPORTED
        return usage.replace(model=model, provenance=known)
    price = price_of(model) if model else None
    if price and usage.tokens_in is not None and usage.tokens_out is not None:
        usd = cost(price, usage.tokens_in, usage.tokens_out, usage.tokens_cached or 0)
        return usage.replace(model=model, usd=usd, provenance=Provenance.PRICED)
    return _with_estimate(usage, model, price or price_list().default, len(prompt), len(text))


def _with_estimate(usage: Usage, model: str | None, price: ModelPrice, asked: int, said: int) -> Usage:
    tokens_in = (
        usage.tokens_in if usage.tokens_in is not None else asked * PROMPT_READS // CHARACTERS_PER_TOKEN
    )
    tokens_out = (
        usage.tokens_out
        if usage.tokens_out is not None
        else min(said // CHARACTERS_PER_TOKEN, MOST_TOKENS_SAID)
    )
    usd = cost(price, tokens_in, tokens_out, usage.tokens_cached or 0)
    return usage.replace(
        tokens_in=tokens_in,
        tokens_out=tokens_out,
        usd=usd,
        model=model,
        provenance=Provenance.ESTIMATED,
    )


class PricingAgent:
    """An agent whose every reply says what it cost; where *guesses*, also if it has to be guessed."""

    def __init__(self, agent: Agent, model: str | None, *, guesses: bool = True) -> None:
        self._agent = agent
        self._model = model
        self._guesses = guesses

    def run(self, brief: Brief, stop: RunControl) -> Reply:
        return self.price(self._agent.run(brief, stop), brief, stop)

    def price(self, reply: Reply, brief: Brief, stop: RunControl) -> Reply:
        """Return *reply* with what the run cost, and that a cap ended it where one did."""
        if stop.capped and reply.ending is RunEnding.STOPPED:
            reply = reply.replace(ending=RunEnding.CAPPED, why=stop.capped)
        if did_nothing(reply):
            return reply
        said = reported_usage(reply.text, prompt=brief.prompt)
        # What stands beside the answer is the last word of a program that also told it on the way.
        usage = (
            Usage(**said.model_dump())
            if said and (said.usd is not None or reply.usage == Usage())
            else reply.usage
        )
        is_told = usage.usd is not None or usage.tokens_in is not None or usage.tokens_out is not None
        if not is_told and not self._guesses:
            return reply.replace(usage=Usage(model=usage.model or self._model))
        return reply.replace(usage=with_cost(usage, self._model, brief.prompt, reply.text))
